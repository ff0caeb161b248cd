// SPDX-License-Identifier: MIT

import CLinux
import EventLoop
import Glibc
import Transport

/// Checks the machine: disk and its wear, power, temperature, memory, programs that interfere.
struct MachineDoctor {
  /// A prefix for the kernel's files, for tests; otherwise empty.
  var root = ""
  /// The folder of the database.
  var folder: String

  func examine() -> [Finding] { [disk()] + wear() + power() + [heat(), memory(), modemManager()].compactMap { $0 } }

  private static let fewBytes: UInt64 = 100 << 20
  private static let hottest = 80

  private func disk() -> Finding {
    var space = statvfs()
    guard statvfs(folder, &space) == 0 else {
      return Finding("disk", .failed, "\(folder): \(String(cString: strerror(errno)))", "Check that it exists.")
    }
    let free = UInt64(space.f_bavail) &* UInt64(space.f_frsize)
    let words = "\(free >> 20) MiB free on the database's file system"
    if space.f_flag & UInt(ST_RDONLY) != 0 {
      return Finding(
        "disk", .failed, "\(folder) is read-only",
        "Linux remounts a worn-out card or a damaged file system so: see `dmesg`, save the data, replace the card.")
    }
    guard free > Self.fewBytes else {
      return Finding("disk", .warning, words, "Free disk space: at 0 the gateway leaves messages in the radio.")
    }
    return Finding("disk", .ok, words)
  }

  /// The wear reported by eMMC and newer SD cards: tenths of their life, and whether the reserve is low.
  private func wear() -> [Finding] {
    Files.names(in: "\(root)/sys/block").filter { $0.hasPrefix("mmcblk") }.compactMap { disk in
      let device = "\(root)/sys/block/\(disk)/device"
      guard let life = Self.text("\(device)/life_time") else { return nil }
      let tenths =
        life.split(separator: " ").compactMap { Int($0.drop { $0 == "0" || $0 == "x" }, radix: 16) }.max() ?? 0
      let reserve =
        Self.text("\(device)/pre_eol_info").flatMap { Int($0.drop { $0 == "0" || $0 == "x" }, radix: 16) } ?? 0
      guard tenths > 0 else { return nil }
      let words = "\(disk): \(min(tenths, 10) * 10) % of its life is used up"
      let isWorn = tenths >= 9 || reserve >= 2
      return Finding(
        "wear", isWorn ? .warning : .ok, words, isWorn ? "Run `meshpost backup`, then replace it soon." : nil)
    }
  }

  /// Reports a low supply voltage of a Raspberry Pi, which can cause faults that look like others.
  private func power() -> [Finding] {
    var findings: [Finding] = []
    for sensor in Files.names(in: "\(root)/sys/class/hwmon") {
      let device = "\(root)/sys/class/hwmon/\(sensor)"
      guard Self.text("\(device)/name") == "rpi_volt" else { continue }
      let isLow = Self.text("\(device)/in0_lcrit_alarm") == "1"
      findings.append(
        isLow ? Self.weak("the voltage is too low now") : Finding("power", .ok, "the supply voltage is OK"))
    }
    if let flags = Self.text("\(root)/sys/devices/platform/soc/soc:firmware/get_throttled").flatMap({
      Int($0, radix: 16)
    }) {
      if flags & 0x1 != 0 { findings.append(Self.weak("the voltage is too low now")) }
      if flags & 0x1_0000 != 0 { findings.append(Self.weak("the voltage has been too low since boot")) }
      if flags & 0x4 != 0 {
        findings.add("power", .warning, "the processor is throttled now", "Improve the cooling or the power supply.")
      }
      if flags == 0 { findings.add("power", .ok, "no undervoltage or throttling since boot") }
    }
    return findings
  }

  private static func weak(_ words: String) -> Finding {
    Finding(
      "power", .failed, words, "Use a supply and a cable that hold 5.1 V under load: radios drop off the USB otherwise."
    )
  }

  private func heat() -> Finding? {
    guard let text = Self.text("\(root)/sys/class/thermal/thermal_zone0/temp"), let millidegrees = Int(text) else {
      return nil
    }
    let degrees = millidegrees / 1000
    guard degrees >= Self.hottest else { return Finding("heat", .ok, "\(degrees) °C") }
    return Finding(
      "heat", .warning, "\(degrees) °C: the processor slows down", "Improve the cooling, or move it into the shade.")
  }

  private func memory() -> Finding? {
    let lines = Self.text("\(root)/proc/meminfo")?.split(separator: "\n") ?? []
    guard let line = lines.first(where: { $0.hasPrefix("MemAvailable:") }),
      let available = line.split(separator: " ").dropFirst().first.flatMap({ Int($0) })
    else { return nil }
    guard available < 32 << 10 else { return Finding("memory", .ok, "\(available >> 10) MiB available") }
    return Finding(
      "memory", .warning, "only \(available >> 10) MiB available",
      "Check what else is running: `ps -eo rss,comm --sort -rss`.")
  }

  /// Checks for ModemManager, which opens serial ports and sends modem commands to them.
  private func modemManager() -> Finding? {
    let isThere = Files.names(in: "\(root)/proc").contains { name in
      name.allSatisfy(\.isNumber) && Self.text("\(root)/proc/\(name)/comm") == "ModemManager"
    }
    guard isThere else { return nil }
    return Finding(
      "ModemManager", .warning, "it is running, and probes serial radios as modems",
      "Without a modem, run `systemctl disable --now ModemManager`; otherwise add a udev rule with ENV{ID_MM_DEVICE_IGNORE}=\"1\"."
    )
  }

  // MARK: Small files

  /// The beginning of a small file, without trailing white space.
  static func text(_ location: String) -> String? {
    guard let bytes = Files.read(location) else { return nil }
    var text = String(decoding: bytes, as: UTF8.self)
    while text.last?.isWhitespace == true { text.removeLast() }
    return text
  }
}
