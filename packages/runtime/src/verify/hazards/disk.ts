/** Each child writes to its own disk. */
import { askAll, everyone, fail, pass, shared, type Hazard } from "../hazard.ts";
import { dropCaches } from "../guest-file.ts";

const before = "written before the branch";

function path(scratch: string, what: string): string {
  return `/.${scratch}-${what}`;
}

export const disk: Hazard = {
  id: "disk",
  title: "Disk",
  policy: "A child sees the disk of its snapshot and its own writes, never those of a sibling or the source.",
  mechanism:
    "Each machine writes to its own qcow2 overlay. Layers below it are frozen and never written again.",
  async prepare(source, { scratch }) {
    await source.write(path(scratch, "source"), before);
    await source.sandbox.agent.sync();
  },
  async check(lab) {
    const subjects = everyone(lab);
    const overlays = subjects.map(({ name, sandbox }) => ({ name, value: sandbox.current.paths.overlay }));
    const both = shared(overlays);
    if (both !== undefined) return fail(`${both} write to the same file of the host`);
    const inBranch = await askAll(lab.branched, (each) => each.read(path(lab.scratch, "source")));
    const without = inBranch.find(({ value }) => value !== before);
    if (without) return fail(`${without.name} does not have a file that the source wrote before the branch`);
    await askAll(subjects, (each) => each.write(path(lab.scratch, "own"), each.name));
    await lab.source.write(path(lab.scratch, "later"), "written after the branch");
    await askAll(subjects, dropCaches);
    for (const { name, value } of await askAll(subjects, (each) => each.read(path(lab.scratch, "own")))) {
      if (value !== name) return fail(`${name} reads "${value ?? "nothing"}" from a file that it wrote`);
    }
    const [, ...siblings] = lab.children;
    for (const what of ["source", "later"]) {
      const others = what === "later" ? [...siblings, ...lab.branched] : siblings;
      const found = await askAll(others, (each) => each.read(path(lab.scratch, what)));
      const seen = found.find(({ value }) => value !== undefined);
      if (seen) return fail(`${seen.name} sees a file that only the first child wrote`);
    }
    // Reads the files again if one of them was changed.
    await lab.runtime.store.verify(lab.snapshot);
    return pass(
      `${subjects.length} children, source and branch write to different disks; the snapshot is unchanged`,
    );
  },
};
