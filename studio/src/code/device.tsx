// Which device code is written for.
import { isExport } from "../api";
import { device, opened } from "../store";

export function DeviceChooser() {
  const known = opened.value?.devices ?? [];
  const isListed = known.some((one) => one.name === device.value);
  return (
    <label class="device">
      Device
      <select value={device.value} disabled={isExport} onChange={(event) => (device.value = event.currentTarget.value)}>
        {!isListed && <option value={device.value}>{device.value}</option>}
        {known.map((one) => <option key={one.name} value={one.name}>{one.name} — {one.title}{one.api ? ` (${one.api})` : ""}</option>)}
      </select>
    </label>
  );
}
