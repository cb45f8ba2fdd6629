/* A table of the user's, from CSV: two columns of numbers and one of classes. */
"use strict";

const MOST_BYTES = 2_000_000;
const MOST_TABLE_ROWS = 2000, LEAST_ROWS = 10, MOST_CLASSES = 5;
const MISSING = new Set(["", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "?"]);
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

/** What is wrong with a table, in words for who made it. */
class TableError extends Error {}

function separatorOf(heading) {
  const outside = heading.replace(/"[^"]*"/g, "");
  const count = (separator) => outside.split(separator).length;
  return [",", ";", "\t", "|"].reduce((best, next) => (count(next) > count(best) ? next : best));
}

/** Rows of cells; quotes may hold separators, line ends and doubled quotes. */
function parsedCsv(text) {
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
    const rule = `Column "${name}" has commas that may be decimal points or thousands, such as ${commas[0]}`;
    throw new TableError(`${rule}; write numbers with a decimal point.`);
  }
}

/** A file of so many bytes is read, or refused. */
function checkSize(bytes) {
  if (bytes <= MOST_BYTES) return;
  const [most, size] = [MOST_BYTES / 1e6, (bytes / 1e6).toFixed(1)];
  throw new TableError(`The file must be at most ${most} MB, but has ${size} MB; keep some of its rows.`);
}

/** The cells in the text of a CSV file, and which columns are all numbers. */
function cellsOfCsv(text) {
  if (text.includes("\0")) throw new TableError("The file must be text in UTF-8; save the table as CSV.");
  const [columns, ...rows] = parsedCsv(text);
  if (columns === undefined) throw new TableError("The file must hold a table, but it is empty.");
  if (columns.length < 3) {
    const rule = "The table must have three columns or more, two of numbers and one of classes";
    throw new TableError(`${rule}, but has ${columns.length}; add what is missing.`);
  }
  const uneven = rows.findIndex((row) => row.length !== columns.length);
  if (uneven >= 0) {
    const rule = `Every row must have ${columns.length} cells`;
    throw new TableError(`${rule}, but row ${uneven + 1} has ${rows[uneven].length}; correct it.`);
  }
  const isNumber = (cell) => MISSING.has(cell) || Number.isFinite(numberIn(cell));
  return { columns, rows, numeric: columns.map((_, c) => rows.every((row) => isNumber(row[c]))) };
}

/** Two columns of numbers, and that of the classes: the first of few texts, else of texts, else the last. */
function usualColumns({ columns, rows, numeric }) {
  const others = columns.map((_, c) => c).filter((c) => !numeric[c]);
  const isFew = (c) => new Set(rows.map((row) => row[c])).size <= MOST_CLASSES + 1; // a missing one may be among them
  const target = others.find(isFew) ?? others[0] ?? columns.length - 1;
  const features = columns.map((_, c) => c).filter((c) => numeric[c] && c !== target);
  if (features.length >= 2) return [features[0], features[1], target];
  const names = others.map((c) => `"${columns[c]}"`).join(" and ");
  throw new TableError(`Two columns must hold numbers, but ${names} hold something else; write them as numbers.`);
}

/** The table of the chosen columns [across, up, classes]; rows in which one of them is missing are left out. */
function tableFromCells({ columns, rows: all }, chosen) {
  const [across, up, target] = chosen, rows = all.filter((row) => !chosen.some((c) => MISSING.has(row[c])));
  for (const c of [across, up]) checkCommas(columns[c], rows.map((row) => row[c]));
  const x = rows.map((row) => [across, up].map((c) => numberIn(row[c]))), labels = rows.map((row) => row[target]);
  const names = [...new Set(labels)].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  if (names.length < 2 || names.length > MOST_CLASSES) {
    const rule = `The class column must hold 2 to ${MOST_CLASSES} classes`;
    throw new TableError(`${rule}, but holds ${names.length}; keep some of them.`);
  }
  if (x.length < LEAST_ROWS) {
    const rule = `The table must have at least ${LEAST_ROWS} rows without missing values`;
    throw new TableError(`${rule}, but has ${x.length}.`);
  }
  const stride = Math.max(1, x.length / MOST_TABLE_ROWS), kept = Math.min(x.length, MOST_TABLE_ROWS);
  const shown = Array.from({ length: kept }, (_, i) => Math.floor(i * stride));
  return {
    x: Float64Array.from(shown.flatMap((row) => x[row])),
    labels: Uint8Array.from(shown, (row) => names.indexOf(labels[row])),
    classNames: names,
    columns: [columns[across], columns[up]],
    left: x.length - kept,
  };
}
