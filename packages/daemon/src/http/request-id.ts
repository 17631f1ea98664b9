/** Every request has an id: the caller's if it is sane, else a made one. It is in the answer and in the log. */
import { randomUUID } from "node:crypto";

const sane = /^[A-Za-z0-9._-]{1,64}$/;

export function requestIdOf(header: string | string[] | undefined): string {
  return typeof header === "string" && sane.test(header) ? header : randomUUID();
}
