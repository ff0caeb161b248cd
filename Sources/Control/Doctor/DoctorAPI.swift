// SPDX-License-Identifier: MIT

import BluetoothSession
import EventLoop
import HTTP
import JSON
import Transport

/// `/v1/doctor`, `/v1/doctor/bluetooth`, `/v1/report`.
struct DoctorAPI {
  private let dependencies: ControlAPI.Dependencies

  init(_ dependencies: ControlAPI.Dependencies) { self.dependencies = dependencies }

  func show() async throws -> Answer { Self.answer(try await examine()) }
  func showBluetooth() async throws -> Answer { Self.answer(try await examineBluetooth()) }

  func report() async throws -> Answer {
    let body = TroubleReport(dependencies: dependencies).write(try await examine())
    return .whole(HTTPResponse(status: 200, headers: ["Content-Type": "text/markdown"], body: body))
  }

  /// Bluetooth is looked at where the radio is one over Bluetooth.
  private func examine() async throws -> [Finding] {
    let findings = GatewayDoctor(dependencies: dependencies).examine()
    guard dependencies.connection.link.bluetoothTarget != nil else { return findings }
    return findings + (try await examineBluetooth())
  }

  private func examineBluetooth() async throws -> [Finding] {
    let doctor = BluetoothDoctor(
      dependencies.connection.link.bluetoothTarget, dependencies.bluetooth, on: dependencies.loop)
    return try await doctor.examine()
  }

  private static func answer(_ findings: [Finding]) -> Answer {
    .json { json in
      json.arrayField("findings") { json in
        for finding in findings {
          json.object { json in
            json.field("subject", finding.subject)
            json.field("state", finding.state.rawValue)
            json.field("words", finding.message)
            json.field("remedy", finding.remedy)
          }
        }
      }
    }
  }
}
