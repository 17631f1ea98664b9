/** Where and as whom a command of a snapshot runs that does not say it. */
import type { Manifest } from "@forkd/store";

export type CommandDefaults = { readonly cwd?: string; readonly user?: string };

export function commandDefaults({ defaults }: Pick<Manifest, "defaults">): CommandDefaults {
  const { cwd, user } = defaults ?? {};
  return { ...(cwd !== undefined && { cwd }), ...(user !== undefined && { user }) };
}
