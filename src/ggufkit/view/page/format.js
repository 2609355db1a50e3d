// Numbers for people.

const LOCALE = "en-US";

export const whole = (number) => Number(number).toLocaleString(LOCALE);

export function bytes(number) {
  let value = number;
  for (const unit of ["bytes", "KiB", "MiB", "GiB", "TiB"]) {
    if (value < 1024 || unit === "TiB") {
      return unit === "bytes" ? `${whole(number)} bytes` : `${value.toFixed(value < 10 ? 2 : 1)} ${unit}`;
    }
    value /= 1024;
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

/** The last part of a path. */
export const basename = (path) => path.split(/[\\/]/).filter(Boolean).pop() ?? path;
