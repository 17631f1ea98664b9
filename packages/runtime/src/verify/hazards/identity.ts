/** Names by which programs tell machines apart. */
import { askAll, everyone, fail, pass, shared, warn, type Hazard, type Subject } from "../hazard.ts";

/** files that AFTER_FORK sets */
const own = ["/proc/sys/kernel/hostname", "/etc/machine-id", "/proc/sys/kernel/random/boot_id"];
/** files that an image may have and that forkd does not change */
const others = ["/var/lib/dbus/machine-id", "/etc/hostid"];
const hostKeys = ["rsa", "ecdsa", "ed25519"].map((kind) => `/etc/ssh/ssh_host_${kind}_key`);

async function factsOf(subject: Subject): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  for (const path of [...own, ...others, ...hostKeys]) {
    const text = (await subject.read(path))?.trim();
    if (text !== undefined && text !== "") found.set(path, text);
  }
  return found;
}

export const identity: Hazard = {
  id: "identity",
  title: "Hostname, machine-id, boot-id, SSH host keys",
  policy: "Each child has its own hostname, machine-id and boot-id. An image has no SSH host keys.",
  mechanism: "The agent sets the three names before a child is handed out. If that fails, the fork fails.",
  async check(lab) {
    const subjects = everyone(lab);
    const facts = await askAll(subjects, factsOf);
    for (const path of own) {
      const values = facts.map(({ name, value }) => ({ name, value: value.get(path) ?? "" }));
      const missing = values.find(({ value }) => value === "");
      if (missing) return fail(`${missing.name} has no ${path}`);
      const both = shared(values);
      if (both !== undefined) return fail(`${both} have the same ${path}`);
    }
    const wrong = subjects.find(
      ({ sandbox }, at) => facts[at]?.value.get(own[0] ?? "") !== sandbox.facts.identity.hostname,
    );
    if (wrong) return fail(`the hostname of ${wrong.name} is not the id of its sandbox`);
    const same = [...others, ...hostKeys].filter(
      (path) =>
        shared(
          facts.flatMap(({ name, value }) =>
            value.has(path) ? [{ name, value: value.get(path) ?? "" }] : [],
          ),
        ) !== undefined,
    );
    if (same.length > 0) {
      return warn(
        `all children share ${same.join(", ")}`,
        "Delete these files in a run step of the recipe, and make them in each child.",
      );
    }
    return pass(`hostname, machine-id and boot-id of ${subjects.length} children differ; no SSH host keys`);
  },
};
