/** Bytes of a guest → text that cannot hide anything from a person or a model that reads it. Pure. */

type SafeText = {
  readonly text: string;
  /** How many characters and escape sequences differ from the guest's bytes; line ends are not counted. */
  readonly replaced: number;
};

/** Sequences that a terminal obeys: CSI, OSC, DCS and others up to their end, two-character escapes. */
const escapes =
  // oxlint-disable-next-line no-control-regex
  /(?:\u001b\[|\u009b)[0-?]*[ -/]*[@-~]|(?:\u001b[PX^_\]]|[\u0090\u0098\u009d-\u009f])[^\u0007\u001b\u009c]*(?:\u0007|\u001b\\|\u009c)?|\u001b[ -/]*[0-~]?/g;
/** Control characters other than line end and tab. */
// oxlint-disable-next-line no-control-regex
const controls = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/g;
/**
 * Characters without a shape: they reorder the text (bidi), split words, or carry a hidden message. The
 * joiners of scripts and emoji (U+200C, U+200D) and the two common variation selectors stay.
 */
const hidden =
  // oxlint-disable-next-line no-misleading-character-class
  /[\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0d\ufeff\ufff9-\ufffb\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;

/** Decodes UTF-8. Removes escape sequences and shows control and invisible characters as visible ones. */
export function safeText(source: Uint8Array | string): SafeText {
  let replaced = 0;
  const count =
    (change: (found: string) => string) =>
    (found: string): string => {
      replaced++;
      return change(found);
    };
  // The decoder must keep a byte order mark: it is a character of the guest's.
  const decoded =
    typeof source === "string" ? source : new TextDecoder("utf-8", { ignoreBOM: true }).decode(source);
  replaced += decoded.split("\ufffd").length - 1;
  const text = decoded
    .replaceAll(
      /\p{Surrogate}/gu,
      count(() => "\ufffd"),
    )
    .replaceAll("\r\n", "\n")
    .replaceAll(
      escapes,
      count(() => ""),
    )
    .replaceAll("\r", "\n")
    .replaceAll(controls, count(picture))
    .replaceAll(hidden, count(codePoint));
  return { text, replaced };
}

/** "␀" for NUL, "␡" for DEL. */
function picture(found: string): string {
  const code = found.codePointAt(0) ?? 0;
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  return code === 0x7f ? "\u2421" : codePoint(found);
}

function codePoint(found: string): string {
  return `\\u{${(found.codePointAt(0) ?? 0).toString(16)}}`;
}

/** The same for every string in a JSON value: labels, file names and reasons can come from a guest. */
export function safeValue(value: unknown): unknown {
  if (typeof value === "string") return safeText(value).text;
  if (Array.isArray(value)) return value.map(safeValue);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, each]) => [safeText(key).text, safeValue(each)]),
  );
}
