// SPDX-License-Identifier: MIT

/// A kind of input from outside, and the code that reads it. `run` reports with `must` where a property does not hold.
///
/// `make fuzz` lets libFuzzer look for inputs that break one, and `KeptInputsTests` tries those that were kept.
enum FuzzTarget: String, CaseIterable {
  case frames, streams, packets, telemetry
  case json, toml, text
  case http, websocket, mqtt, dbus
  case control, hub
  case link, batches, openid
  case configuration, documents, exports

  func run(_ bytes: [UInt8]) {
    switch self {
    case .frames: Self.frames(bytes)
    case .streams: Self.streams(bytes)
    case .packets: Self.packets(bytes)
    case .telemetry: Self.telemetry(bytes)
    case .json: Self.json(bytes)
    case .toml: Self.toml(bytes)
    case .text: Self.text(bytes)
    case .http: Self.http(bytes)
    case .websocket: Self.websocket(bytes)
    case .mqtt: Self.mqtt(bytes)
    case .dbus: Self.dbus(bytes)
    case .control: Self.control(bytes)
    case .hub: Self.hub(bytes)
    case .link: Self.link(bytes)
    case .batches: Self.batches(bytes)
    case .openid: Self.openid(bytes)
    case .configuration: Self.configuration(bytes)
    case .documents: Self.documents(bytes)
    case .exports: Self.exports(bytes)
    }
  }
}

/// The first byte chooses how the rest is cut, so that a reader of streams shows that cuts do not matter to it.
struct CutInput {
  /// The bits of the first byte that no cut uses.
  let choice: UInt8
  let whole: [UInt8]
  let pieces: [ArraySlice<UInt8>]

  init(_ bytes: [UInt8]) {
    let first = bytes.first ?? 0
    choice = first >> 3
    whole = Array(bytes.dropFirst())
    let size = [1, 2, 3, 5, 8, 21, 64, 1000][Int(first & 7)]
    pieces = stride(from: 0, to: whole.count, by: size).map { [whole] in whole[$0..<min($0 + size, whole.count)] }
  }
}
