/** JSON that clients can cut anywhere. Pure. */

/**
 * Clients decode each piece of an answer separately, and some take U+2028 for the end of a line. Escapes avoid
 * both.
 */
export function asciiJson(value: unknown): string {
  return JSON.stringify(value).replace(
    /[\u007f-\uffff]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
