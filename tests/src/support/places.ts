/** Paths of the repository and of the snapshots that all tests share. */
import { createHash } from "node:crypto";
import { fileURLToPath } from "node:url";
import { join } from "node:path";

export const repository = fileURLToPath(new URL("../../..", import.meta.url));
/** The recipe of the shared snapshot "small" */
export const smallRecipe = join(repository, "tests/fixtures/small");
export const guestDir = join(repository, "guest");
export const cliPath = join(repository, "packages/cli/dist/bundle/forkd.cjs");
/** A data directory with the shared snapshots. bake.ts builds it; no daemon of a test uses it directly. */
export const sharedData = join(repository, ".cache/test-data");
const checkout = createHash("sha256").update(repository).digest("hex").slice(0, 4);
/**
 * All files of a test file are below directories with this prefix, so that leftovers can be found. The prefix
 * differs for each test file of each checkout, because several may run at the same time.
 */
export const testPrefix = `/tmp/fkt-${checkout}-${process.pid}-`;
