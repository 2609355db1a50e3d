// The lines of two texts next to each other.

const MAX_LINES = 5000; // of a text: comparing takes time and memory quadratic in them

/** [side, line] of all lines, with as many as possible in both; null for texts of too many lines. Sides: both, before, after. */
export function mergedLines(before, after) {
  const [old, young] = [before, after].map((text) => text.split(/\r\n|[\n\r]/)).map((list) => (list.at(-1) === "" ? list.slice(0, -1) : list));
  if (Math.max(old.length, young.length) > MAX_LINES) return null;
  const numbers = new Map();
  const [oldIds, youngIds] = [old, young].map((list) => list.map((line) => numbers.get(line) ?? numbers.set(line, numbers.size).get(line)));
  const width = young.length + 1;
  const common = new Int16Array((old.length + 1) * width); // lines that the ends share in order, from each pair of lines on
  for (let row = old.length - 1; row >= 0; row -= 1) {
    for (let column = young.length - 1; column >= 0; column -= 1) {
      const place = row * width + column;
      common[place] = oldIds[row] === youngIds[column] ? common[place + width + 1] + 1 : Math.max(common[place + width], common[place + 1]);
    }
  }
  const merged = [];
  let [row, column] = [0, 0];
  while (row < old.length || column < young.length) {
    if (row < old.length && column < young.length && oldIds[row] === youngIds[column]) {
      merged.push(["both", old[row]]);
      [row, column] = [row + 1, column + 1];
    } else if (row < old.length && common[(row + 1) * width + column] === common[row * width + column]) {
      merged.push(["before", old[row]]);
      row += 1;
    } else {
      merged.push(["after", young[column]]);
      column += 1;
    }
  }
  return merged;
}
