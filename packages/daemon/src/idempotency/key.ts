/** The Idempotency-Key of a request. */
import type { IncomingMessage } from "node:http";
import { AppError, type Route } from "@forkd/contract";

const printable = /^[\x21-\x7e](?:[\x20-\x7e]{0,126}[\x21-\x7e])?$/;

/** undefined if there is none, or if a repeated request changes nothing more. Throws `invalid_request`. */
export function keyOf(incoming: IncomingMessage, { idempotencyKey }: Route): string | undefined {
  const given = incoming.headers["idempotency-key"];
  if (given === undefined || idempotencyKey === "ignored") return undefined;
  if (idempotencyKey !== "honoured") {
    throw new AppError(
      "invalid_request",
      `Invalid request: Idempotency-Key: does not go with this call; ${idempotencyKey.refused}`,
    );
  }
  if (typeof given === "string" && printable.test(given)) return given;
  throw new AppError(
    "invalid_request",
    "Invalid request: Idempotency-Key: must be 1 to 128 printable ASCII characters",
  );
}
