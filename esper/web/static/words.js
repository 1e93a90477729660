// How figures read: four significant digits, a dash for what was not measured.

export const NONE = "–";

export function number(value) {
  if (value === null || value === undefined) return NONE;
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e12)) return value.toExponential(2);
  return value.toLocaleString("en", { maximumSignificantDigits: 4 });
}

export function gain(value) {
  return value ? `${number(value.mean)} [${number(value.low)}, ${number(value.high)}]` : NONE;
}

export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  const units = ["B", "KiB", "MiB", "GiB"];
  let at = 0;
  while (Math.abs(value) >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${number(value)} ${units[at]}`;
}

export function clock(ms) {
  return ms ? new Date(ms).toLocaleTimeString("en-GB") : NONE;
}

export function moment(ms) {
  return ms ? new Date(ms).toLocaleString("en-GB") : NONE;
}

export function seedPath(id) {
  return `/seed?id=${encodeURIComponent(id)}`;
}
