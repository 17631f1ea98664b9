/** What stat() says of a file's content: changes whenever the file is written or replaced. */
import { stat } from "node:fs/promises";
import { isErrno } from "@forkd/base";

/** undefined if there is no such file */
export async function stampOf(path: string): Promise<string | undefined> {
  try {
    const facts = await stat(path, { bigint: true });
    return `${facts.ino}:${facts.size}:${facts.mtimeNs}`;
  } catch (error) {
    if (isErrno(error, "ENOENT", "ENOTDIR")) return undefined;
    throw error;
  }
}
