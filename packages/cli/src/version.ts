/** The version of this package, from its own manifest. */
import { readFile } from "node:fs/promises";

export async function ownVersion(): Promise<string> {
  const manifest: unknown = JSON.parse(
    await readFile(new URL("../../package.json", import.meta.url), "utf8"),
  );
  const found =
    typeof manifest === "object" && manifest !== null && "version" in manifest ? manifest.version : undefined;
  return String(found);
}
