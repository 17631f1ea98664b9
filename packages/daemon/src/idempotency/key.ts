/** The Idempotency-Key of a request. */
import type { IncomingMessage } from "node:http";
import { AppError, idempotencyKeyHeader, type Route } from "@forkd/contract";

const printable = /^[\x21-\x7e](?:[\x20-\x7e]{0,126}[\x21-\x7e])?$/;
/** Calls that do something each time they are made, and for which no answer is kept: ignoring the key would deceive. */
const refused: Readonly<Record<string, string>> = {
  createSnapshot: "the tag makes it safe to repeat: a second build of it is refused with snapshot_exists",
  exec: "a command is run once per call; run it in the background and look for it in the list of commands",
  eval: "code is evaluated once per call",
};

/** undefined if there is none, or if the request changes nothing by being repeated. */
export function keyOf(incoming: IncomingMessage, name: string, route: Route): string | undefined {
  const given = incoming.headers["idempotency-key"];
  if (given === undefined) return undefined;
  const why = refused[name];
  if (why !== undefined)
    throw new AppError(
      "invalid_request",
      `Invalid request: Idempotency-Key: does not go with this call; ${why}`,
    );
  if (!route.headers?.some((header) => header.name === idempotencyKeyHeader.name)) return undefined;
  if (typeof given === "string" && printable.test(given)) return given;
  throw new AppError(
    "invalid_request",
    "Invalid request: Idempotency-Key: must be 1 to 128 printable ASCII characters",
  );
}
