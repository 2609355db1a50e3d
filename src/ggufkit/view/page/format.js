// Numbers for people.

const LOCALE = "en-US";

export const whole = (number) => Number(number).toLocaleString(LOCALE);

/** A size as the command line writes it: in powers of 1000. */
export function bytes(number) {
  let value = number;
  for (const unit of ["bytes", "kB", "MB", "GB", "TB"]) {
    if (value < 1000 || unit === "TB") {
      return unit === "bytes" ? `${whole(number)} bytes` : `${value.toFixed(1)} ${unit}`;
    }
    value /= 1000;
  }
}

export function short(number) {
  for (const [power, unit] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "K"]]) {
    if (number >= power) return `${(number / power).toFixed(1)} ${unit}`;
  }
  return String(number);
}

/** A number with few digits; texts such as NaN stay. */
export function real(number, digits = 4) {
  if (number === null || number === undefined) return "–";
  if (typeof number !== "number") return String(number).replace("Infinity", "∞");
  if (Number.isInteger(number) && Math.abs(number) < 1e6) return String(number).replace("-", "−");
  return String(Number(number.toPrecision(digits))).replace("-", "−");
}

export const percent = (part) => `${(100 * part).toFixed(part < 0.001 && part > 0 ? 3 : 1)}%`;

export const shape = (dims) => (dims.length ? dims.map(whole).join(" × ") : "scalar");

const LIMITS = [[2, "b1"], [3, "b2"], [4, "b3"], [5, "b4"], [6, "b5"], [8, "b6"], [16, "b8"], [32, "b16"]];

/** The colour class of a number of bits per weight. */
export const bitsClass = (bits) => LIMITS.find(([limit]) => bits < limit)?.[1] ?? "b32";

/** The names of files without what all of them begin and end with, if that leaves something of each. */
export function distinct(paths) {
  const names = paths.map(basename);
  if (new Set(names).size < 2) return names;
  const shared = (texts) => {
    let count = 0;
    while (texts.every((text) => text[count] !== undefined && text[count] === texts[0][count])) count += 1;
    return count;
  };
  const start = names[0].slice(0, shared(names)).search(/[^-._/]*$/); // whole words
  const rests = names.map((text) => text.slice(start));
  const end = rests[0].slice(rests[0].length - shared(rests.map((text) => [...text].reverse().join("")))).search(/[-._/]|$/);
  const tail = shared(rests.map((text) => [...text].reverse().join(""))) - end;
  const short = rests.map((text) => text.slice(0, text.length - tail));
  return short.every(Boolean) ? short : names;
}

/** The last part of a path. */
export const basename = (path) => path.split(/[\\/]/).filter(Boolean).pop() ?? path;
