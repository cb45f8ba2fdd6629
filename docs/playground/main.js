/* The playground: settings, networks and pictures, frame by frame. */
"use strict";

// Milliseconds of a frame for training and for decision regions: with the drawing, 60 frames a second.
const TRAINING_BUDGET = 8, GRID_BUDGET = 2;
// Milliseconds between two looks at what changes slowly.
const CHARTS_EVERY = 250, HASH_AFTER = 250, STATES_A_SECOND = 8;
// Settings that change what is seen, not what is trained.
const SEEN_ONLY = new Set(["heldout", "layer", "speed"]);

class Playground {
  constructor() {
    this.table = null;
    this.running = this.flowing = false;
    this.settings = settingsFromHash(location.hash);
    this.controls = new Controls({
      change: (name, value) => this.change(name, value),
      file: (file) => this.takeFile(file),
    });
    this.views = new Views();
    this._buttons();
    // A link within the page is no settings.
    const isOurs = () => location.hash === "" || location.hash.includes("=");
    addEventListener("hashchange", () => isOurs() && this.apply(settingsFromHash(location.hash)));
    addEventListener("resize", () => this.redraw());
  }

  _buttons() {
    element("play").addEventListener("click", () => (this.running ? this.pause() : this.play()));
    element("step").addEventListener("click", () => this.stepOnce());
    element("reset").addEventListener("click", () => this.reset());
    element("flow-play").addEventListener("click", () => this.toggleFlow());
    element("share").addEventListener("click", () => this.share());
    element("theme").addEventListener("click", () => this.switchTheme());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", ({ matches }) => {
      if (this.themed) return;
      document.documentElement.dataset.theme = matches ? "dark" : "light";
      this.redraw();
    });
    element("numbers").addEventListener("toggle", () => this.redraw());
    document.querySelectorAll("#experiments a").forEach((link) => link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return; // into another tab
      event.preventDefault();
      this.apply(settingsFromHash(link.hash));
      this.play();
    }));
  }

  change(name, value) {
    const before = this.settings;
    if (value === "own" && !this.table) {
      this.controls.show(before, this);
      return element("file").click();
    }
    this.apply(settled({ ...before, [name]: value }), name);
    const { order } = this.settings;
    if (name !== "learn" || before.order === order) return;
    this.tell(`An order of 1 cannot be learned from; it starts at ${order}.`);
  }

  /** Take these settings; networks begin anew unless only what is seen changes. */
  apply(settings, name) {
    this.settings = settings;
    clearTimeout(this.hashTimer);
    const address = `${location.pathname}${location.search}#${hashOf(settings)}`;
    this.hashTimer = setTimeout(() => history.replaceState(null, "", address), HASH_AFTER);
    if (name === "layer" && this.flowing) this.toggleFlow();
    if (!SEEN_ONLY.has(name)) return this.build();
    this.position = Math.min(settings.layer, settings.layers);
    this.controls.show(settings, this);
    return this.redraw();
  }

  /** Data and networks from the settings. */
  build() {
    this.tell(this.running ? "Training." : "Ready: press Play.");
    if (this.settings.data === "own" && !this.table) {
      this.settings = { ...this.settings, data: "spirals" };
      this.tell("Your own table is not part of the link: choose its file.", true);
    }
    this.data = dataOf(this.settings, this.table);
    this.arms = armsOf(this.settings, this.data);
    this.grids = this.arms.map((arm) => new Grid(arm));
    this.owed = 0;
    this.position = Math.min(this.settings.layer, this.settings.layers);
    this.controls.show(this.settings, this);
    this.views.show(this.arms, this.grids, this.data);
    this.redraw();
  }

  reset() {
    this.pause(false);
    this.build();
    this.tell("Back at the start.");
  }

  play() {
    this.running = true;
    this.owed = 1;
    this.last = performance.now();
    element("play").textContent = "Pause";
    this.tell("Training.");
    this.wake();
  }

  pause(say = true) {
    this.running = false;
    element("play").textContent = "Play";
    if (say) this.tell(`Paused. ${this.views.summary(this.arms)}`);
    this.redraw();
  }

  stepOnce() {
    this.running = false;
    element("play").textContent = "Play";
    this._stepAll();
    for (const arm of this.arms) arm.test();
    this.tell(this.views.summary(this.arms));
    this.redraw();
  }

  toggleFlow() {
    this.flowing = !this.flowing;
    if (this.flowing && this.position >= this.settings.layers) this.position = 0;
    this.last = performance.now();
    this.wake();
    this.views.showFlowing(this.flowing);
  }

  _stepAll() {
    for (const arm of this.arms) arm.step();
    if (this.arms.every((arm) => arm.isFinite)) return true;
    this.pause(false);
    this.tell("The loss is no longer a finite number. Choose a smaller learning rate or step, then reset.", true);
    return false;
  }

  /** Draw everything anew in the next frame. */
  redraw() {
    this.stale = true;
    for (const grid of this.grids ?? []) grid.at = 0;
    this.unfinished = new Set(this.grids);
    this.wake();
  }

  wake() {
    this.frame ??= requestAnimationFrame((now) => this._frame(now));
  }

  _frame(now) {
    this.frame = null;
    if (!this.arms) return;
    // A frame's time may lie before that of the click that asked for it.
    const elapsed = Math.min(Math.max(now - (this.last ?? now), 0), 250) / 1000;
    this.last = now;
    if (this.running) this._train(elapsed);
    if (this.flowing) this._flow(elapsed);
    const charts = this.stale || (this.running && now - (this.drawn ?? 0) > CHARTS_EVERY);
    // Training moves points little by little: every second frame is enough to see it.
    this.odd = !this.odd;
    this.views.draw(this, { charts, flow: this.stale || this.flowing || (this.running && this.odd) });
    if (!charts || !this.running) this._advanceGrids();
    if (charts) this.drawn = now;
    if (charts && this.settings.learn) this.controls.showOrder(this.settings, this.arms[0].network.order);
    this.stale = false;
    if (this.running || this.flowing || this.unfinished.size) this.wake();
  }

  _train(elapsed) {
    const speed = Number(this.settings.speed), deadline = performance.now() + TRAINING_BUDGET;
    this.owed = speed ? Math.min(this.owed + speed * elapsed, Math.max(1, speed / 4)) : Infinity;
    let before = performance.now();
    while (this.owed >= 1 && this._stepAll()) {
      this.owed -= 1;
      const now = performance.now(), next = now + (now - before);
      if (next > deadline) break;
      before = now;
    }
    // At the end of the line: a grid that is under way goes on, and the others have their turns.
    for (const grid of this.grids) this.unfinished.add(grid);
  }

  _flow(elapsed) {
    const { layers } = this.settings;
    this.position = Math.min(this.position + STATES_A_SECOND * Math.max(1, layers / 20) * elapsed, layers);
    if (this.position < layers) return;
    this.flowing = false;
    this.views.showFlowing(false);
  }

  /** Go on with decision regions, one network at a time; those of a network that has not moved since are done. */
  _advanceGrids() {
    const [grid] = this.unfinished;
    if (!grid) return;
    if (grid.at === 0) grid.begun = grid.arm.steps;
    if (!grid.advance(performance.now() + GRID_BUDGET)) return;
    this.views.drawBoundary(grid, this.settings);
    this.unfinished.delete(grid);
    if (grid.begun !== grid.arm.steps) this.unfinished.add(grid); // behind the others
  }

  takeFile(file) {
    return this._try(async () => {
      checkSize(file.size);
      this.takeCells(file.name, cellsOfCsv(await file.text()));
    });
  }

  /** Take a table's cells; of more than three columns, others may be chosen. */
  takeCells(name, cells, columns = usualColumns(cells)) {
    const again = (chosen) => this._try(() => this.takeCells(name, cells, chosen));
    this.controls.offerColumns(cells, columns, again);
    this.table = tableFromCells(cells, columns);
    this.change("data", "own");
    const { left, labels, classNames } = this.table, all = left ? ` of ${left + labels.length}` : "";
    this.tell(`${name}: ${labels.length}${all} rows, ${classNames.length} classes.`);
  }

  /** Do something with a table, and tell what is wrong with it. */
  async _try(action) {
    try {
      await action();
    } catch (error) {
      if (!(error instanceof TableError)) throw error;
      this.tell(error.message, true);
    }
  }

  async share() {
    const address = `${location.origin}${location.pathname}#${hashOf(this.settings)}`;
    const holds = this.settings.data === "own" ? "all settings, but not your table" : "all settings";
    try {
      await navigator.clipboard.writeText(address);
      this.tell(`The link is copied: it holds ${holds}.`);
    } catch {
      this.tell(`The address of this page holds ${holds}: copy it from your browser.`);
    }
  }

  switchTheme() {
    const { dataset } = document.documentElement;
    dataset.theme = dataset.theme === "dark" ? "light" : "dark";
    this.themed = true;
    try {
      localStorage.setItem("fracdnn-theme", dataset.theme);
    } catch {
      /* A browser that keeps nothing. */
    }
    this.redraw();
  }

  tell(message, bad = false) {
    element("status").textContent = message;
    element("status").classList.toggle("bad", bad);
  }
}

const playground = new Playground();
playground.build();
