/**
 * JSON that is passed on without being parsed. A value from elsewhere may be small as text and expensive as
 * objects, and most code needs only the text.
 */
import { randomUUID } from "node:crypto";

/** Texts that stringifyJson() has met so far; undefined outside of it. */
let met: { readonly mark: string; readonly texts: string[] } | undefined;

export class JsonText {
  readonly text: string;

  /** `text` must be valid JSON: see checkJson(). */
  constructor(text: string) {
    this.text = text;
  }

  parse(): unknown {
    return JSON.parse(this.text);
  }

  /** For JSON.stringify(), which parses the text and is therefore slow. Use stringifyJson(). */
  toJSON(): unknown {
    if (!met) return this.parse();
    met.texts.push(this.text);
    return met.mark;
  }
}

/** Like JSON.stringify(), but copies the text of each JsonText into the result unparsed. */
export function stringifyJson(value: unknown): string {
  const outer = met;
  // A random mark: no string in the value can be equal to it.
  met = { mark: randomUUID(), texts: [] };
  try {
    const whole = JSON.stringify(value);
    const { mark, texts } = met;
    if (texts.length === 0) return whole;
    const parts = whole.split(`"${mark}"`);
    return parts.map((part, index) => part + (texts[index] ?? "")).join("");
  } finally {
    met = outer;
  }
}
