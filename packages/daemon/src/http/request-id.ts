/**
 * Every request has an id, in its answer and in the log: the caller's if it is valid, otherwise a new one.
 */
import { randomUUID } from "node:crypto";

const valid = /^[A-Za-z0-9._-]{1,64}$/;

export function requestIdOf(header: string | string[] | undefined): string {
  return typeof header === "string" && valid.test(header) ? header : randomUUID();
}
