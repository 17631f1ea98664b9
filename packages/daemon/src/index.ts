export { serve } from "./main.ts";
export type { ServeOptions } from "./main.ts";
export { configFileOf, loadConfig, settingNames } from "./config.ts";
export { describeSettings, requireSetting, setSettings, unsetSettings, type Change } from "./settings.ts";
export type { Config, Flags, SettingName, Settings, Source } from "./config.ts";
export { fixHost, inspectHost, type Fixed } from "./inspect-host.ts";
