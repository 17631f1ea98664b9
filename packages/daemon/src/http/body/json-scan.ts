/**
 * The cost of JSON text, found before it is parsed: a million small values are little to send and take
 * seconds to check. Takes the bytes as they arrive, so that text is refused early. Does not check whether the
 * text is JSON.
 */
import { advice, AppError } from "@forkd/contract";

/** Most members of all objects and arrays together */
export const maxJsonValues = 20_000;
export const maxJsonDepth = 64;

const quote = 0x22;
const backslash = 0x5c;
const comma = 0x2c;
const opening = [0x5b, 0x7b] as const;
const closing = [0x5d, 0x7d] as const;

export class JsonScan {
  #values = 0;
  #depth = 0;
  #isInString = false;
  #isEscaped = false;

  /** Throws `body_too_large` or `invalid_request`. */
  take(bytes: Uint8Array): void {
    let [values, depth, isInString, isEscaped] = [
      this.#values,
      this.#depth,
      this.#isInString,
      this.#isEscaped,
    ];
    for (let at = 0; at < bytes.length; at++) {
      const byte = bytes[at];
      if (isInString) {
        if (isEscaped) isEscaped = false;
        else if (byte === backslash) isEscaped = true;
        else if (byte === quote) isInString = false;
      } else if (byte === quote) isInString = true;
      else if (byte === comma) values++;
      else if (byte === opening[0] || byte === opening[1]) {
        values++;
        depth++;
        if (depth > maxJsonDepth) throw tooDeep();
      } else if (byte === closing[0] || byte === closing[1]) depth--;
      if (values > maxJsonValues) throw tooMany();
    }
    this.#values = values;
    this.#depth = depth;
    this.#isInString = isInString;
    this.#isEscaped = isEscaped;
  }
}

function tooMany(): AppError {
  return new AppError("body_too_large", `The JSON body has more than ${maxJsonValues} values`, {
    details: { values: maxJsonValues },
    remedy: advice("Send large data as text, or as a file of the sandbox."),
  });
}

function tooDeep(): AppError {
  return new AppError(
    "invalid_request",
    `Invalid request: the body is nested too deeply: more than ${maxJsonDepth} levels`,
  );
}
