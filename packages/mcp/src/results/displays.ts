/** What code displayed → texts of bounded length, and images as content. */
import type { ContentBlock } from "@modelcontextprotocol/server";
import type { EvalDisplay } from "@forkd/contract";
import { safeText, safeValue } from "./safe-text.ts";

const mostImages = 8;
/** Characters of base64 of all images together. */
const largestImages = 6 * 1024 * 1024;
const mostDisplays = 50;

const texts = ["text", "markdown", "html", "latex"] as const;
const values = ["json", "data", "chart"] as const;
const images = { png: "image/png", jpeg: "image/jpeg" } as const;
/** Forms that are named but not shown. */
const others = ["svg", "javascript", "pdf", "extra"] as const;

type Shown = { is_main_result: boolean; [form: string]: unknown };

export class Displays {
  readonly images: ContentBlock[] = [];
  readonly #shown: Shown[] = [];
  readonly #limit: number;
  #imageBytes = 0;
  #count = 0;

  /** `limit`: characters of one form. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  add(display: EvalDisplay): void {
    this.#count++;
    if (this.#shown.length >= mostDisplays) return;
    const shown: Shown = { is_main_result: display.is_main_result };
    const leftOut: string[] = [...(display.truncated_parts ?? [])];
    for (const form of texts) {
      const text = display[form];
      if (text === undefined) continue;
      if (text.length > this.#limit) leftOut.push(form);
      shown[form] = safeText(text.slice(0, this.#limit)).text;
    }
    for (const form of values) {
      const value = display[form];
      if (value === undefined) continue;
      if (JSON.stringify(value).length > this.#limit) leftOut.push(form);
      else shown[form] = safeValue(value);
    }
    for (const [form, mimeType] of Object.entries(images)) {
      const data = display[form as keyof typeof images];
      if (data === undefined) continue;
      if (this.#addImage(data, mimeType)) shown["image"] = this.images.length;
      else leftOut.push(form);
    }
    leftOut.push(...others.filter((form) => display[form] !== undefined));
    if (leftOut.length > 0) shown["left_out"] = [...new Set(leftOut)];
    this.#shown.push(shown);
  }

  /** Fields of the answer; a value that only has a text is `result` already. */
  fields(): { results?: Shown[]; results_left_out?: number } {
    const isPlain = this.#shown.every((shown) => Object.keys(shown).every((key) => plainKeys.has(key)));
    if (this.#shown.length === 0 || (isPlain && this.#shown.length === 1 && this.#shown[0]?.is_main_result))
      return {};
    const dropped = this.#count - this.#shown.length;
    return { results: this.#shown, ...(dropped > 0 && { results_left_out: dropped }) };
  }

  /** The guest chose the bytes: only base64 of a bounded size is passed. */
  #addImage(data: string, mimeType: string): boolean {
    const size = this.#imageBytes + data.length;
    if (this.images.length >= mostImages || size > largestImages || !/^[A-Za-z0-9+/]*={0,2}$/.test(data))
      return false;
    this.#imageBytes = size;
    this.images.push({ type: "image", data, mimeType });
    return true;
  }
}

const plainKeys: ReadonlySet<string> = new Set(["is_main_result", "text", "json"]);
