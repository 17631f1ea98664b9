/** A part of a file on the host. */
export type FilePart = { path: string; offset: number; size: number };
