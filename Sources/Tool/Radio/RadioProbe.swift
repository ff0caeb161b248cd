// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import ControlShapes
import EventLoop
import Glibc
import JSON
import Transport

/// Probes the serial devices of this machine, without the daemon.
enum Probing {
  struct Found {
    let device: String
    let result: SerialProbe.Result

    var isRadio: Bool { if case .radio = result { true } else { false } }

    /// Text for people.
    var description: String {
      switch result {
      case .radio(let name, let key, let model): "\(Show.clean(name)), key \(key.prefix(12)), \(Show.clean(model))"
      case .other: "not a radio: sends other data"
      case .silent: "no answer"
      case .closed(let error): error.description
      }
    }

    var json: JSONValue {
      var fields: [(String, JSONValue)] = [("device", .string(device))]
      switch result {
      case .radio(let name, let key, let model):
        fields += [
          ("result", .string("radio")), ("name", .string(name)), ("key", .string(key)), ("model", .string(model)),
        ]
      case .other: fields.append(("result", .string("other")))
      case .silent: fields.append(("result", .string("silent")))
      case .closed(let error): fields += [("result", .string("closed")), ("error", .string(error.description))]
      }
      return .object(fields)
    }
  }

  /// The radio that this machine's gateway is using. One that has just begun has a device open already, and knows a moment
  /// later whether a radio is there.
  static func radioInUse() -> Found? {
    let row = Shape.LinkState()
    let client = Connection.here().map { ControlClient($0) }
    func radio() -> JSONValue? { client?.quietly("/v1/status")?[Shape.Status().radio] }
    var seen = radio()
    for _ in 0..<20 where ["connecting", "handshaking"].contains(seen?[row.state] ?? "") {
      guard !SerialDevices.all().isEmpty else { break }
      usleep(300_000)
      seen = radio()
    }
    guard let radio = seen, radio[row.state] == "up",
      // `try?`: a link that cannot be parsed is not serial.
      let link = try? LinkAddress(parsing: radio[row.link] ?? ""), case .serial(let location, _) = link,
      let identity = radio[row.identity], let name = identity["name"]?.string, let key = identity["key"]?.string
    else { return nil }
    let target = Folder.resolved(location)
    let device = SerialDevices.all().first { Folder.resolved($0) == target } ?? target
    return Found(device: device, result: .radio(name: name, key: key, model: "in use by the gateway"))
  }

  /// Probes the devices one after the other.
  static func look(
    at devices: [String], besides known: Found? = nil, baud: UInt32 = LinkAddress.defaultBaud
  ) -> [Found] {
    devices.map { device in
      if let known, Folder.resolved(known.device) == Folder.resolved(device) {
        return Found(device: device, result: known.result)
      }
      let loop = EventLoop()
      var found: SerialProbe.Result = .silent
      loop.run {
        // Nobody cancels it.
        do { found = try await SerialProbe.look(at: device, baud: baud, on: loop) } catch { return }
      }
      return Found(device: device, result: found)
    }
  }
}

extension RadioCommand {
  struct Probe: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Find radios among the serial devices of this machine.",
      discussion: """
        Probes each device that no other program has open, without disturbing other equipment: a device that sends by itself \
        is only listened to, any other gets one query of five bytes, twice. Without arguments, probes all serial devices. \
        Does not need the daemon; a radio that the daemon is using is listed too. Exits with 69 if there is no radio.
        """)
    @Flag(help: "Print JSON.") var json = false
    @Option(help: "The baud rate.") var baud: UInt32 = LinkAddress.defaultBaud
    @Argument(help: "The devices, such as /dev/ttyUSB0.", completion: .file()) var devices: [String] = []

    func run() throws {
      if let host = Connection.hostOfEnvironment {
        Console.error("these are devices of this machine; MESHPOST_HOST names \(host)")
      }
      let all = devices.isEmpty ? SerialDevices.all() : devices
      let found = Probing.look(at: all, besides: Probing.radioInUse(), baud: baud)
      if json {
        print(json: .object([("devices", .array(found.map(\.json)))]))
      } else {
        if found.isEmpty { print("no serial device found") }
        for device in found { print("\(device.device)  \(device.description)") }
      }
      guard found.contains(where: \.isRadio) else { throw ExitCode(EX_UNAVAILABLE) }
    }
  }
}
