// SPDX-License-Identifier: MIT

import BluetoothSession
import HTTP
import JSON
import Transport

/// `/v1/doctor`, `/v1/doctor/bluetooth`, `/v1/report`.
final class DoctorAPI {
  static let paths = ["/v1/doctor", "/v1/doctor/bluetooth", "/v1/report"]

  private let parts: ControlAPI.Parts
  private var bluetooth: BluetoothDoctor?

  init(_ parts: ControlAPI.Parts) { self.parts = parts }

  /// False: not one of these.
  func handle(_ request: HTTPRequest, _ responder: HTTPResponder) -> Bool {
    switch (request.method, request.path) {
    case ("GET", "/v1/doctor"): examine { Self.answer(responder, $0) }
    case ("GET", "/v1/doctor/bluetooth"): examineBluetooth { Self.answer(responder, $0) }
    case ("GET", "/v1/report"):
      examine { [parts] findings in
        let body = TroubleReport(parts: parts).write(findings)
        responder.respond(HTTPResponse(status: 200, headers: ["Content-Type": "text/markdown"], body: body))
      }
    default: return false
    }
    return true
  }

  /// Bluetooth is looked at where the radio is one over Bluetooth.
  private func examine(_ done: @escaping ([Finding]) -> Void) {
    let findings = GatewayDoctor(parts: parts).examine()
    guard parts.connection.link.bluetoothTarget != nil else { return done(findings) }
    examineBluetooth { done(findings + $0) }
  }

  private func examineBluetooth(_ done: @escaping ([Finding]) -> Void) {
    let doctor = BluetoothDoctor(parts.connection.link.bluetoothTarget, parts.bluetooth, on: parts.loop)
    bluetooth = doctor
    doctor.examine(done)
  }

  private static func answer(_ responder: HTTPResponder, _ findings: [Finding]) {
    Answering.answer(responder) { json in
      json.arrayField("findings") { json in
        for finding in findings {
          json.object { json in
            json.field("subject", finding.subject)
            json.field("state", finding.state.rawValue)
            json.field("words", finding.words)
            json.field("remedy", finding.remedy)
          }
        }
      }
    }
  }
}
