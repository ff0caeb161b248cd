// SPDX-License-Identifier: MIT

import BluetoothSession
import CBluetooth
import EventLoop
import Glibc

/// Checks everything that Bluetooth needs, and reports faults with their remedies.
public final class BluetoothDoctor {
  private let visit: BlueZVisit
  private let target: BluetoothTarget?
  private let options: BluetoothOptions
  private let loop: EventLoop

  /// `target`: the configured radio, if it is connected over Bluetooth.
  public init(_ target: BluetoothTarget?, _ options: BluetoothOptions, on loop: EventLoop) {
    self.target = target
    self.options = options
    self.loop = loop
    visit = BlueZVisit(on: loop)
  }

  public func examine() async throws(CancellationError) -> [Finding] {
    defer { visit.end() }
    let result: Result<String, BluetoothTrouble>
    do {
      result = .success(try await visit.begin(adapter: options.adapter, within: .seconds(5)))
    } catch {
      guard let trouble = error as? BluetoothTrouble else { throw CancellationError() }
      result = .failure(trouble)
    }
    var findings = service(result) + switches() + [try await version()]
    if case .success(let path) = result { findings += [adapter(path)] + bond() }
    return findings
  }

  private func service(_ result: Result<String, BluetoothTrouble>) -> [Finding] {
    switch result {
    case .success(let path):
      let name = path.split(separator: "/").last.map(String.init) ?? path
      return [
        Finding("service", .ok, "bluetoothd answers"), Finding("permission", .ok, "this user may use it"),
        Finding("adapter", .ok, "\(name) is on"),
      ]
    case .failure(.notAllowed):
      return [
        Finding(
          "permission", .failed, "D-Bus does not allow user \(user) to use bluetoothd",
          "Install deploy/dbus/meshpost.conf to /etc/dbus-1/system.d, or add \(user) to the group bluetooth.")
      ]
    case .failure(let trouble):
      return [Finding(visit.isServiceUp ? "adapter" : "service", .failed, trouble.description, trouble.remedy)]
    }
  }

  private var user: String { getpwuid(getuid()).map { String(cString: $0.pointee.pw_name) } ?? "\(getuid())" }

  private func switches() -> [Finding] {
    let blocks = Rfkill.bluetooth()
    guard !blocks.isEmpty else { return [Finding("rfkill", .ok, "no rfkill switch for Bluetooth")] }
    return blocks.map { block in
      if block.isHard {
        return Finding(
          "rfkill", .failed, "\(block.name) is blocked by a hardware switch",
          "Turn on the machine's switch for wireless devices.")
      }
      guard block.isSoft else { return Finding("rfkill", .ok, "\(block.name) is not blocked") }
      let mayLift = options.mayUnblock && access("/dev/rfkill", W_OK) == 0
      return Finding(
        "rfkill", mayLift ? .warning : .failed, "\(block.name) is blocked",
        mayLift
          ? "Nothing to do: radio.unblock removes the block."
          : "Run `rfkill unblock bluetooth`, or set radio.unblock.")
    }
  }

  // MARK: Versions

  private func version() async throws(CancellationError) -> Finding {
    guard let text = try await bluetoothdVersion() else {
      return Finding("bluetoothd", .warning, "its version is unknown", "Install the package bluez.")
    }
    let parts = text.split(separator: ".").compactMap { UInt16($0).map(Int.init) }
    guard parts.count >= 2 else { return Finding("bluetoothd", .warning, "version \(text)") }
    let number = parts[0] * 1000 + parts[1]
    for fault in Self.faults where fault.versions.contains(number) {
      return Finding("bluetoothd", .warning, "version \(text): \(fault.message)", fault.remedy)
    }
    return Finding("bluetoothd", .ok, "version \(text)")
  }

  /// Known defects by version of bluetoothd: that of 5.66 was seen on the bench, older ones are from BlueZ's
  /// change log. 5.66 is written as 5066.
  static let faults: [(versions: ClosedRange<Int>, message: String, remedy: String)] = [
    (
      0...5045, "no sockets for notifications and writes (AcquireNotify, AcquireWrite)",
      "Nothing to do: a slower method is used; a newer BlueZ is better."
    ),
    (
      5066...5066, "it crashes when a radio has forgotten its bond",
      "Nothing to do if radio.pin is set: the gateway waits for its restart and pairs again."
    ),
  ]

  private func bluetoothdVersion() async throws(CancellationError) -> String? {
    for location in ["/usr/libexec/bluetooth/bluetoothd", "/usr/lib/bluetooth/bluetoothd"]
    where access(location, X_OK) == 0 {
      do {
        let exit = try await ChildProcess.run(
          [location, "--version"], environment: [:], input: [], limit: .seconds(5), maxOutput: 64, on: loop)
        let line = exit.output.prefix { $0 != 10 }
        if !line.isEmpty { return String(decoding: line, as: UTF8.self) }
      } catch is SystemError {
        continue  // not executable: try the other location
      } catch {
        throw CancellationError()
      }
    }
    return nil
  }

  private func adapter(_ path: String) -> Finding {
    guard let number = path.split(separator: "/").last.flatMap({ Int32($0.dropFirst(3)) }) else {
      return Finding("controller", .warning, "\(path) has no number")
    }
    var found = meshpost_controller()
    let answer = meshpost_controller_read(number, &found)
    guard answer <= 0 else {
      return Finding("controller", .warning, "libbluetooth is not installed", "apt install libbluetooth3")
    }
    guard answer == 0 else {
      return Finding("controller", .warning, "the kernel has no information about hci\(number)")
    }
    let buses = [0: "virtual", 1: "USB", 2: "PC card", 3: "UART", 5: "PCI", 6: "SDIO", 7: "SPI", 8: "I²C", 9: "SMD"]
    var words = "hci\(number) on \(buses[Int(found.bus)] ?? "bus \(found.bus)")"
    guard found.hci_version >= 0 else { return Finding("controller", .ok, words) }
    let company = meshpost_company(found.manufacturer).map { String(cString: $0) } ?? ""
    words += ", \(company), HCI \(found.hci_version), firmware revision \(found.revision)"
    guard found.hci_version >= 6 else {
      return Finding(
        "controller", .failed, words,
        "It is older than Bluetooth 4.0 and does not support Low Energy: use another adapter.")
    }
    return Finding("controller", .ok, words)
  }

  // MARK: The radio

  private func bond() -> [Finding] {
    guard let target else { return [Finding("radio", .ok, "radio.link is not Bluetooth")] }
    let fitting = visit.objects.devices.values.filter { target.matches($0) }
    guard let device = fitting.first(where: \.isPaired) ?? fitting.first else {
      return [
        Finding(
          "radio", .warning, "BlueZ does not know \(target) yet",
          "`meshpost radio scan` shows whether it is in range; it is paired automatically if radio.pin is set.")
      ]
    }
    guard device.isPaired else {
      let canPair = options.pin != nil
      return [
        Finding(
          "radio", canPair ? .warning : .failed, "\(device.name) \(device.address) is not paired",
          canPair
            ? "Nothing to do: it is paired when it is in range."
            : "Set radio.pin, or run `meshpost radio pair \(device.address)`.")
      ]
    }
    return [
      Finding("radio", .ok, "\(device.name) \(device.address) is paired\(device.isConnected ? ", connected" : "")")
    ]
  }
}
