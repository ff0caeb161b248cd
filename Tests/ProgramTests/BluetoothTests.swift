// SPDX-License-Identifier: MIT

import Foundation
import TestSupport
import Testing

/// A real BlueZ with a virtual radio, in an emulated machine: hardware/bluez-bench. It takes long and mostly waits, so it runs at the same time as
/// the others.
@Suite(.serialized) struct BluetoothTests {
  private static let bench = Checkout.folder.appending(path: "hardware/bluez-bench")
  private static let isReady = FileManager.default.fileExists(
    atPath: Checkout.folder.appending(path: ".build/bluez-bench/initramfs.gz").path())

  @Test(
    .enabled(if: isReady, "hardware/bluez-bench/setup could not prepare the emulated machine here"),
    .timeLimit(.minutes(40)))
  func `a radio over Bluetooth: paired, synced, and back by itself from every fault`() async throws {
    // hardware/bluez-bench/exercise.py by hand does it twenty times.
    try await exercise([], environment: ["BENCH_DROPS": "5"])
  }

  @Test(
    .enabled(if: isReady, "hardware/bluez-bench/setup could not prepare the emulated machine here"),
    .timeLimit(.minutes(40)))
  func `a radio that accepts only writes with response works, as ESP32 boards need`() async throws {
    try await exercise(["killed"], environment: ["BENCH_ESP32": "1"])
  }

  @Test(
    .enabled(if: isReady, "hardware/bluez-bench/setup could not prepare the emulated machine here"),
    .timeLimit(.minutes(20)))
  func `the trials that owners run with their radios pass over Bluetooth`() async throws {
    let scratch = Scratch()
    let run = try Program(
      Self.bench.appending(path: "run").path(),
      [
        "--timeout", "900", "--rw", scratch.folder.path(), "--backend", "127.0.0.1:5500", "--",
        Self.bench.appending(path: "accept").path(), Program.programs.path(),
      ], environment: ["MESHPOST_TEST_PATIENCE": "120"])
    let code = await run.ends()
    print(run.lines.joined(separator: "\n"))
    #expect(code == 0)
  }

  private func exercise(_ faults: [String], environment: [String: String] = [:]) async throws {
    let scratch = Scratch()
    let programs = Program.programs.path()
    let run = try Program(
      Self.bench.appending(path: "run").path(),
      [
        "--timeout", "2100", "--rw", scratch.folder.path(), "--backend", "127.0.0.1:5500", "--", "python3",
        Self.bench.appending(path: "exercise.py").path(), programs, scratch.folder.path(),
      ] + faults, environment: environment)
    let code = await run.ends()
    print(run.lines.joined(separator: "\n"))
    if code != 0 {
      // `try?`: a run that fails early has no log, and its own words are printed above.
      print((try? String(contentsOfFile: scratch.location("gateway.log"), encoding: .utf8))?.suffix(20_000) ?? "no log")
    }
    #expect(code == 0)
  }
}
