// SPDX-License-Identifier: MIT

import BluetoothSession
import ControlShapes
import EventLoop
import HTTP
import JSON
import Messaging
import Sync
import Timing
import Transport

/// `/v1/radio/…`: operations on the link.
struct RadioAPI {
  private let dependencies: ControlAPI.Dependencies
  private let tools: BluetoothTools

  init(_ dependencies: ControlAPI.Dependencies) {
    self.dependencies = dependencies
    tools = BluetoothTools(on: dependencies.loop, log: dependencies.log)
  }

  func scan(_ request: HTTPRequest) async throws -> Answer {
    let seconds = Int(min(max(ControlAPI.number(request, "seconds") ?? 8, 1), 60))
    let radios = try await tools.scan(adapter: dependencies.bluetooth.adapter, seconds: seconds)
    return .json { json in
      json.objects(Shape.Scan().radios, radios) { Self.write($0, to: &$1) }
    }
  }

  private static func write(_ radio: DeviceFacts, to json: inout JSONWriter) {
    let row = Shape.FoundRadio()
    json.field(row.address, radio.address)
    json.field(row.name, radio.name)
    json.field(row.rssi, radio.rssi)
    json.field(row.paired, radio.isPaired)
    json.field(row.connected, radio.isConnected)
  }

  /// The address and, for pairing, `{"pin":"123456"}` in the body, because URLs may be logged.
  func pair(_ request: HTTPRequest) async throws -> Answer {
    let address = try address(request)
    // `try?`: a body that is not JSON has no PIN, and the answer says so.
    let text = (try? JSONValue(parsing: request.body))?["pin"]?.string
    var options = dependencies.bluetooth
    if let text { options.pin = BluetoothOptions.pin(text) }
    guard options.pin != nil else { throw Refusal.invalid("expected a PIN of 6 digits") }
    if let link = dependencies.connection.link as? BluetoothLink, link.name.uppercased() == "BLE:\(address)" {
      return try await pair(link, options.pin)
    }
    try await tools.pair(address: address, options: options)
    return .json { $0.field(Shape.Paired().paired, address) }
  }

  /// Pairs the radio of the gateway's own link, and follows that link.
  private func pair(_ link: BluetoothLink, _ pin: UInt32?) async throws -> Answer {
    if !link.isUp { link.pairAnew(pin: pin) }
    let end = dependencies.loop.now + .seconds(150)
    while !link.isUp {
      let isOver = dependencies.loop.now >= end
      if case .waiting(.bluetooth(let trouble)) = dependencies.connection.state, trouble.needsSomebody || isOver {
        throw trouble
      }
      guard !isOver else { throw BluetoothTrouble.notFound(link.name) }
      try await dependencies.loop.sleep(for: .seconds(1))
    }
    return .json { $0.field(Shape.Paired().paired, link.name) }
  }

  func forget(_ request: HTTPRequest) async throws -> Answer {
    let address = try address(request)
    try await tools.forget(address: address, adapter: dependencies.bluetooth.adapter)
    return .json { $0.field(Shape.Forgotten().forgotten, address) }
  }

  private func address(_ request: HTTPRequest) throws -> String {
    // `try?`: an invalid link is no address.
    guard let text = request.query["address"],
      case .bluetooth(.address(let address))? = try? LinkAddress(parsing: "ble:\(text)")
    else { throw Refusal.invalid("expected an address such as C0:FF:EE:00:00:01") }
    return address
  }
}
