export { serve } from "./main.ts";
export type { ServeOptions } from "./main.ts";
export { loadConfig, settingNames } from "./config.ts";
export type { Config, Flags, SettingName, Settings, Source } from "./config.ts";
