/** Unpacks stdin into a store, and writes a line when pages have been written: for a test that kills it. */
import { unpackArchive } from "../src/index.ts";
import { openAt } from "./support.ts";

const [, , place] = process.argv;
if (place !== undefined) {
  const store = await openAt(place);
  await unpackArchive(store, process.stdin, { onProgress: () => void process.stdout.write("written\n") });
}
