// SPDX-License-Identifier: MIT

import ControlShapes
import HTTP
import JSON
import Transport

/// `/v1/doctor`, `/v1/doctor/bluetooth`, `/v1/report`.
struct DoctorAPI {
  let dependencies: ControlAPI.Dependencies

  func show() async throws -> Answer { Self.answer(try await examine()) }
  func showBluetooth() async throws -> Answer { Self.answer(try await examineBluetooth()) }

  func report() async throws -> Answer {
    let body = TroubleReport(dependencies: dependencies).write(try await examine())
    return .whole(HTTPResponse(status: 200, headers: ["Content-Type": "text/markdown"], body: body))
  }

  /// Includes Bluetooth if the radio is connected over Bluetooth.
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
      json.objects(Shape.Findings().findings, findings) { finding, json in
        let row = Shape.Finding()
        json.field(row.subject, finding.subject)
        json.field(row.state, finding.state.rawValue)
        json.field(row.words, finding.message)
        json.field(row.remedy, finding.remedy)
      }
    }
  }
}
