/** Metadata of E2B → labels, so that lists of forkd can select by them. Pure. */

const name = /^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$/;
const maxValue = 256;
const maxLabels = 32;

/** Entries that cannot be a label are left out: the record of the sandbox has all of them. */
export function labelsOf(metadata: Readonly<Record<string, string>>): Record<string, string> {
  const fitting = Object.entries(metadata).filter(
    ([key, value]) => name.test(key) && value.length <= maxValue,
  );
  return Object.fromEntries(fitting.slice(0, maxLabels));
}
