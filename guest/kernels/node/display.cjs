// Results of the Node kernel: the forms of a value, and display().
//
// A class decides how its objects are shown with a method [Symbol.for("forkd.display")]() or
// [Symbol.for("Jupyter.display")]() that returns an object from form or MIME type to content.
//
// Invariant: nothing here replies to the host; the kernel sets the function that sends a result.
"use strict";
const util = require("node:util");

const PARTS = [
  "text",
  "html",
  "markdown",
  "svg",
  "latex",
  "javascript",
  "png",
  "jpeg",
  "pdf",
  "json",
  "data",
  "chart",
  "extra",
];
const MIME = {
  "text/plain": "text",
  "text/html": "html",
  "text/markdown": "markdown",
  "image/svg+xml": "svg",
  "text/latex": "latex",
  "application/javascript": "javascript",
  "text/javascript": "javascript",
  "image/png": "png",
  "image/jpeg": "jpeg",
  "application/pdf": "pdf",
  "application/json": "json",
};
const BINARY = new Set(["png", "jpeg", "pdf"]);
const JSON_PARTS = new Set(["json", "data", "chart", "extra"]);
// The order in which forms take room.
const ORDER = ["text", "png", "jpeg", "svg", "html", "markdown", "latex", "javascript"].concat([
  "json",
  "chart",
  "data",
  "pdf",
  "extra",
]);
const MAX_BYTES = 4 << 20;
const MAX_TEXT = 1 << 20;
const METHODS = [Symbol.for("forkd.display"), Symbol.for("Jupyter.display")];

let emit = () => false;

/** `send(isMain, mask, forms)` returns false if there is no eval that the result could belong to. */
function setEmit(send) {
  emit = send;
}

/** The forms of a value other than its text, or null. Runs code of the user. */
function formsOf(value) {
  if ((typeof value !== "object" && typeof value !== "function") || value === null) return null;
  for (const name of METHODS) {
    if (typeof value[name] !== "function") continue;
    const bundle = value[name]();
    if (typeof bundle !== "object" || bundle === null) continue;
    const forms = {};
    for (const [key, content] of Object.entries(bundle)) {
      if (content === undefined || content === null) continue;
      const part = PARTS.includes(key) ? key : MIME[key];
      if (part !== undefined) forms[part] = content;
      else (forms.extra ??= {})[key] = content;
    }
    return forms;
  }
  return null;
}

function encode(part, content) {
  if (JSON_PARTS.has(part)) return Buffer.from(JSON.stringify(content));
  if (BINARY.has(part))
    return typeof content === "string" ? Buffer.from(content, "base64") : Buffer.from(content);
  return Buffer.from(String(content));
}

/** The forms within the limits: [number, bytes], and the mask of those that are cut. */
function pack(forms) {
  let left = MAX_BYTES;
  let mask = 0;
  const packed = [];
  for (const part of ORDER) {
    if (forms[part] === undefined) continue;
    const number = PARTS.indexOf(part);
    let data = encode(part, forms[part]);
    if (part === "text" && data.length > MAX_TEXT) {
      mask |= 1 << number;
      let end = MAX_TEXT - 3;
      while ((data[end] & 0xc0) === 0x80) end--;
      data = Buffer.concat([data.subarray(0, end), Buffer.from("…")]);
    }
    if (data.length > left) {
      mask |= 1 << number;
      continue;
    }
    left -= data.length;
    packed.push([number + 1, data]);
  }
  return { mask, packed };
}

function show(forms, isMain = false) {
  const { mask, packed } = pack(forms);
  if (!emit(isMain, mask, packed) && forms.text !== undefined) process.stdout.write(`${forms.text}\n`);
}

/** Sends the value of the last expression if it has other forms than text. */
function showMain(value, text) {
  const forms = formsOf(value);
  if (forms !== null) show({ text, ...forms }, true);
}

function display(...values) {
  for (const value of values) show({ text: util.inspect(value), ...formsOf(value) });
}
for (const part of ["html", "markdown", "svg", "latex", "javascript", "png", "jpeg", "pdf", "json"])
  display[part] = (content) => show({ [part]: content });

module.exports = { display, setEmit, showMain };
