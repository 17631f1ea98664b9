/** Where the host programs of `native/` are. */
import { fileURLToPath } from "node:url";

/** The absolute path of a program that `make -C native` builds. */
export function nativeTool(name: string): string {
  return fileURLToPath(new URL(`../../../../native/build/${name}`, import.meta.url));
}
