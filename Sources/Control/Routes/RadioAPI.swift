// SPDX-License-Identifier: MIT

import BluetoothSession
import EventLoop
import HTTP
import JSON
import Sync
import Timing
import Transport

/// `/v1/radio/…`: what an operator does about the link itself.
final class RadioAPI {
  static let paths = ["/v1/radio/scan", "/v1/radio/pair", "/v1/radio/forget"]

  private let parts: ControlAPI.Parts
  private let tools: BluetoothTools

  init(_ parts: ControlAPI.Parts) {
    self.parts = parts
    tools = BluetoothTools(on: parts.loop, log: parts.log)
  }

  /// False: not one of these.
  func handle(_ request: HTTPRequest, _ responder: HTTPResponder) -> Bool {
    switch (request.method, request.path) {
    case ("GET", "/v1/radio/scan"): scan(request, responder)
    case ("POST", "/v1/radio/pair"): pair(request, responder)
    case ("POST", "/v1/radio/forget"): forget(request, responder)
    default: return false
    }
    return true
  }

  private static func answer(
    _ responder: HTTPResponder, status: Int = 200, _ body: (inout JSONWriter) -> Void
  ) {
    let bytes = JSONWriter.object(body) + [10]
    responder.respond(HTTPResponse(status: status, headers: ["Content-Type": "application/json"], body: bytes))
  }

  private static func refuse(_ responder: HTTPResponder, _ trouble: BluetoothTrouble) {
    answer(responder, status: 502) {
      $0.field("error", trouble.description)
      $0.field("remedy", trouble.remedy)
    }
  }

  private func scan(_ request: HTTPRequest, _ responder: HTTPResponder) {
    let seconds = min(max(request.query["seconds"].flatMap { Int($0) } ?? 8, 1), 60)
    tools.scan(adapter: parts.bluetooth.adapter, seconds: seconds) { result in
      switch result {
      case .failure(let trouble): Self.refuse(responder, trouble)
      case .success(let radios):
        Self.answer(responder) { json in
          json.arrayField("radios") { json in
            for radio in radios { json.object { Self.write(radio, to: &$0) } }
          }
        }
      }
    }
  }

  private static func write(_ radio: DeviceFacts, to json: inout JSONWriter) {
    json.field("address", radio.address)
    json.field("name", radio.name)
    json.field("rssi", radio.rssi)
    json.field("paired", radio.isPaired)
    json.field("connected", radio.isConnected)
  }

  /// The address and, for pairing, `{"pin":"123456"}` in the body: a query would end up in histories.
  private func pair(_ request: HTTPRequest, _ responder: HTTPResponder) {
    guard let address = address(request, responder) else { return }
    // `try?`: a body that is no JSON has no PIN, and that is what is said.
    let text = (try? JSONValue(parsing: request.body))?["pin"]?.string
    var options = parts.bluetooth
    if let text {
      options.pin = BluetoothOptions.pin(text)
    }
    guard options.pin != nil else {
      return Self.answer(responder, status: 400) { $0.field("error", "a PIN of 6 digits is wanted") }
    }
    guard !isOurs(address) else { return pairOwn(options.pin, responder) }
    tools.pair(address: address, options: options) { trouble in
      if let trouble { return Self.refuse(responder, trouble) }
      Self.answer(responder) { $0.field("paired", address) }
    }
  }

  /// The radio of the link itself: the link pairs, and is watched.
  private func isOurs(_ address: String) -> Bool { parts.connection.link.name.uppercased() == "BLE:\(address)" }

  private func pairOwn(_ pin: UInt32?, _ responder: HTTPResponder) {
    guard let link = parts.connection.link as? BluetoothLink else { return }
    if link.isUp { return Self.answer(responder) { $0.field("paired", link.name) } }
    link.pairAnew(pin: pin)
    wait(for: link, responder, until: parts.loop.now + .seconds(150))
  }

  private func wait(for link: BluetoothLink, _ responder: HTTPResponder, until end: MonotonicTime) {
    if link.isUp { return Self.answer(responder) { $0.field("paired", link.name) } }
    if case .waiting(.bluetooth(let trouble)) = parts.connection.state, trouble.needsSomebody || parts.loop.now >= end {
      return Self.refuse(responder, trouble)
    }
    guard parts.loop.now < end else { return Self.refuse(responder, .notFound(link.name)) }
    parts.loop.schedule(after: .seconds(1)) { [weak self] in self?.wait(for: link, responder, until: end) }
  }

  private func forget(_ request: HTTPRequest, _ responder: HTTPResponder) {
    guard let address = address(request, responder) else { return }
    tools.forget(address: address, adapter: parts.bluetooth.adapter) { trouble in
      if let trouble { return Self.refuse(responder, trouble) }
      Self.answer(responder) { $0.field("forgotten", address) }
    }
  }

  private func address(_ request: HTTPRequest, _ responder: HTTPResponder) -> String? {
    if let text = request.query["address"],
      case .bluetooth(.address(let address))? = try? LinkAddress(parsing: "ble:\(text)")
    {
      return address  // `try?`: what is no link is no address
    }
    Self.answer(responder, status: 400) { $0.field("error", "an address such as C0:FF:EE:00:00:01 is wanted") }
    return nil
  }
}
