/** The version of forkd, from this package's own manifest. */
import { readFileSync } from "node:fs";
import { z } from "zod";

const text = readFileSync(new URL("../../package.json", import.meta.url), "utf8");
export const forkdVersion = z.object({ version: z.string() }).parse(JSON.parse(text)).version;
