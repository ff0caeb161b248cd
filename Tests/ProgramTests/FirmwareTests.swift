// SPDX-License-Identifier: MIT

import Foundation
import TestSupport
import Testing

/// The gateway in a mesh of MeshCore's own code: hardware/firmware. It mostly waits for the air, so it runs at the same time as the others.
@Suite struct FirmwareTests {
  /// $MESHPOST_FIRMWARE: the folder of MeshCore's programs.
  private static let nodes = ProcessInfo.processInfo.environment["MESHPOST_FIRMWARE"]

  @Test(
    .enabled(
      if: nodes != nil, "MESHPOST_FIRMWARE names no folder with MeshCore's programs (hardware/firmware/run --help)"),
    .timeLimit(.minutes(15)))
  func `in a mesh of the firmware, each state of a message is true`() async throws {
    try await run(Self.nodes ?? "")
  }

  @Test(.timeLimit(.minutes(5))) func `the scenarios that say the same of the virtual mesh do so`() async throws {
    try await run("virtual", ["direct", "repeater", "queue", "tcp", "full"])
  }

  @Test func `a folder without the programs is said to be one`() async throws {
    let run = try Program(
      Checkout.folder.appending(path: "hardware/firmware/run").path(),
      ["/nonexistent", "--programs", Program.programs.path()])
    #expect(await run.ends() == 66)
    #expect(run.lines.contains { $0.contains("companion is missing") })
  }

  private func run(_ nodes: String, _ scenarios: [String] = []) async throws {
    let run = try Program(
      Checkout.folder.appending(path: "hardware/firmware/run").path(),
      [nodes, "--programs", Program.programs.path()] + scenarios)
    let code = await run.ends()
    print(run.lines.joined(separator: "\n"))
    #expect(code == 0)
  }
}
