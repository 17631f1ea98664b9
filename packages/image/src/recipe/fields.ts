/** Fields that several parts of a recipe.json have. */
import { posix } from "node:path";
import { z } from "zod";

/** Mounted at boot; they hide files that an image has there. */
const hiddenDirectories = ["/proc", "/sys", "/dev", "/run", "/tmp"];

const noNul = (text: string): boolean => !text.includes("\0");
export const line = z.string().refine(noNul, "must not contain a NUL byte");

const argument = line.max(131_072);
export const argv = z
  .array(argument)
  .min(1, "must name a program")
  .max(1000)
  .refine((list) => list[0] !== "", "must name a program");

export const guestPath = line
  .max(4096)
  .refine((path) => path.startsWith("/") && path !== "/", "must be an absolute path")
  .refine(
    (path) => posix.normalize(path) === path && !path.endsWith("/"),
    'must be a plain path without "..", "." or "//"',
  )
  .refine(
    (path) => !hiddenDirectories.some((each) => path === each || path.startsWith(`${each}/`)),
    `must not be in ${hiddenDirectories.join(", ")}: other file systems are mounted there at boot`,
  );

export const recipePath = line
  .min(1)
  .max(4096)
  .refine(
    (path) => !path.startsWith("/") && !path.split("/").includes(".."),
    'must be a path inside the recipe, without ".."',
  );

export const packageName = z
  .string()
  .max(128)
  .regex(/^[a-z0-9][a-z0-9+.-]+$/, "is not the name of a Debian package");

export const fileMode = z.string().regex(/^[0-7]{3,4}$/, 'must be three or four octal digits, e.g. "0644"');

export const variables = z
  .record(
    z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,255}$/, "is not the name of a variable"),
    line.max(131_072),
  )
  .refine((env) => Object.keys(env).length <= 1000, "must have at most 1000 variables");
