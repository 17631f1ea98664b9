/** Where tests find the tree, and the snapshots that all of them share. */
import { createHash } from "node:crypto";
import { fileURLToPath } from "node:url";
import { join } from "node:path";

export const repository = fileURLToPath(new URL("../../..", import.meta.url));
export const guestDir = join(repository, "guest");
export const cliPath = join(repository, "packages/cli/dist/src/main.js");
/** A data directory with baked snapshots; made once by bake.ts, never used by a daemon of a test directly. */
export const sharedData = join(repository, ".cache/test-data");
const checkout = createHash("sha256").update(repository).digest("hex").slice(0, 4);
/**
 * Everything a test file makes is below a directory with this prefix, so that leftovers can be told. Each file of each checkout has
 * its own: several may run at the same time.
 */
export const testPrefix = `/tmp/fkt-${checkout}-${process.pid}-`;
