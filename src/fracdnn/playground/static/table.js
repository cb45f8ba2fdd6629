/* A table of the user's: two columns of numbers and one of classes, from CSV or from `fracdnn play TABLE`. */

const MOST_BYTES = 2_000_000;
// As in ../table.py.
const MOST_ROWS = 2000, LEAST_ROWS = 10, MOST_CLASSES = 5;
const MISSING = new Set(["", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "?"]);
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

/** What is wrong with a table, in words for who made it. */
export class TableError extends Error {}

function separatorOf(heading) {
  const outside = heading.replace(/"[^"]*"/g, "");
  const count = (separator) => outside.split(separator).length;
  return [",", ";", "\t", "|"].reduce((best, next) => (count(next) > count(best) ? next : best));
}

/** Rows of cells; quotes may hold separators, line ends and doubled quotes. */
export function parsedCsv(text) {
  const separator = separatorOf(text.slice(0, (text.indexOf("\n") + 1 || text.length + 1) - 1));
  const rows = [];
  let row = [], cell = "", quoted = false;
  const end = () => {
    row.push(cell.trim());
    if (row.some((each) => each !== "")) rows.push(row);
    row = [];
    cell = "";
  };
  for (let i = text.charCodeAt(0) === 0xfeff ? 1 : 0; i < text.length; i++) {
    const letter = text[i];
    if (quoted) {
      if (letter !== '"') cell += letter;
      else if (text[i + 1] === '"') cell += text[++i];
      else quoted = false;
    } else if (letter === '"' && cell.trim() === "") {
      quoted = true;
      cell = "";
    } else if (letter === separator) {
      row.push(cell.trim());
      cell = "";
    } else if (letter === "\n") {
      end();
    } else if (letter !== "\r") {
      cell += letter;
    }
  }
  end();
  return rows;
}

function numberIn(cell) {
  const text = cell.replace(",", ".");
  return NUMBER.test(text) ? Number(text) : NaN;
}

/** Commas may stand for points, unless all of them may as well separate thousands. */
function checkCommas(name, cells) {
  const commas = cells.filter((cell) => cell.includes(","));
  if (commas.length && commas.every((cell) => /^[+-]?\d{1,3},\d{3}$/.test(cell))) {
    const rule = `Column "${name}" must be clear about its commas, but holds ${commas[0]}`;
    throw new TableError(`${rule}; write numbers with a decimal point.`);
  }
}

/** Which column holds the classes: the only one that is not all numbers, else the last. */
function classColumn(columns, rows) {
  const others = columns.map((_, c) => c).filter((c) => rows.some((row) => !Number.isFinite(numberIn(row[c]))));
  if (others.length > 1) {
    const names = others.map((c) => `"${columns[c]}"`).join(" and ");
    throw new TableError(`Two columns must hold numbers, but ${names} hold something else; write them as numbers.`);
  }
  return others[0] ?? 2;
}

/** A file of so many bytes is read, or refused. */
export function checkSize(bytes) {
  if (bytes <= MOST_BYTES) return;
  const [most, size] = [MOST_BYTES / 1e6, (bytes / 1e6).toFixed(1)];
  throw new TableError(`The file must be at most ${most} MB, but has ${size} MB; keep some of its rows.`);
}

/** The table in the text of a CSV file. */
export function tableFromCsv(text) {
  if (text.includes("\0")) throw new TableError("The file must be text in UTF-8; save the table as CSV.");
  const [columns, ...all] = parsedCsv(text);
  if (columns === undefined) throw new TableError("The file must hold a table, but it is empty.");
  if (columns.length !== 3) {
    const rule = "The table must have three columns, two of numbers and one of classes";
    throw new TableError(`${rule}, but has ${columns.length}; keep three.`);
  }
  const uneven = all.findIndex((row) => row.length !== 3);
  if (uneven >= 0) {
    const { length } = all[uneven];
    throw new TableError(`Every row must have three cells, but row ${uneven + 1} has ${length}; correct it.`);
  }
  const rows = all.filter((row) => !row.some((cell) => MISSING.has(cell)));
  const target = classColumn(columns, rows), features = [0, 1, 2].filter((c) => c !== target);
  for (const c of features) checkCommas(columns[c], rows.map((row) => row[c]));
  const cells = { x: rows.map((row) => features.map((c) => numberIn(row[c]))), labels: rows.map((row) => row[target]) };
  return checkedTable({ columns: features.map((c) => columns[c]), target: columns[target], ...cells });
}

/** Points as the networks take them, from a document {columns, target, x, labels}, which may hold anything. */
export function checkedTable(document) {
  const { columns, x, labels } = document ?? {};
  const shaped = Array.isArray(columns) && columns.length === 2 && Array.isArray(x) && Array.isArray(labels);
  const isPlace = (row) => Array.isArray(row) && row.length === 2 && row.every(Number.isFinite);
  if (!shaped || x.length !== labels.length || !x.every(isPlace)) {
    throw new TableError("The table must hold two finite numbers and a class in each row.");
  }
  const names = [...new Set(labels.map(String))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  if (names.length < 2 || names.length > MOST_CLASSES) {
    const rule = `The class column must hold 2 to ${MOST_CLASSES} classes`;
    throw new TableError(`${rule}, but holds ${names.length}; keep some of them.`);
  }
  if (x.length < LEAST_ROWS) {
    throw new TableError(`The table must have ${LEAST_ROWS} rows without empty cells at least, but has ${x.length}.`);
  }
  const stride = Math.max(1, x.length / MOST_ROWS), kept = Math.min(x.length, MOST_ROWS);
  const rows = Array.from({ length: kept }, (_, i) => Math.floor(i * stride));
  return {
    x: Float64Array.from(rows.flatMap((row) => x[row])),
    labels: Uint8Array.from(rows, (row) => names.indexOf(String(labels[row]))),
    classNames: names,
    columns: columns.map(String),
    left: x.length - kept,
  };
}
