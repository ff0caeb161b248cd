// SPDX-License-Identifier: MIT

import Companion
import Foundation
import MeshCoreFixtures
import Testing

/// Compares all fields that `expected` names; `actual` may have more.
private func difference(_ expected: Any?, _ actual: Any?, at place: String) -> String? {
  let expected = unwrapped(expected)
  let actual = unwrapped(actual)
  switch (expected, actual) {
  case (nil, nil): return nil
  case (let wanted as [String: Any], let found as [String: Any]):
    for (name, value) in wanted.sorted(by: { $0.key < $1.key }) {
      if ["decrypted", "link", "padding_bytes"].contains(name) { continue }
      if let problem = difference(value, found[name], at: "\(place).\(name)") { return problem }
    }
    return nil
  case (let wanted as [Any], let found as [Any]):
    guard wanted.count == found.count else { return "\(place): \(wanted.count) wanted, \(found.count) found" }
    for (index, pair) in zip(wanted, found).enumerated() {
      if let problem = difference(pair.0, pair.1, at: "\(place)[\(index)]") { return problem }
    }
    return nil
  case (let wanted as String, let found as String): return wanted == found ? nil : "\(place): \(wanted) ≠ \(found)"
  case (let wanted as NSNumber, let found as NSNumber):
    return abs(wanted.doubleValue - found.doubleValue) < 1e-9 ? nil : "\(place): \(wanted) ≠ \(found)"
  default: return "\(place): \(String(describing: expected)) ≠ \(String(describing: actual))"
  }
}

private func unwrapped(_ value: Any?) -> Any? {
  guard let value, !(value is NSNull) else { return nil }
  let mirror = Mirror(reflecting: value)
  guard mirror.displayStyle == .optional else { return (value as? Bool).map { NSNumber(value: $0) } ?? number(value) }
  return mirror.children.first.flatMap { unwrapped($0.value) }
}

private func number(_ value: Any) -> Any {
  if let integer = value as? Int { return NSNumber(value: integer) }
  if let double = value as? Double { return NSNumber(value: double) }
  return value
}

struct Vector: Sendable, CustomTestStringConvertible {
  let index: Int
  var fields: [String: Any] { Fixtures.section("vectors")[index] }
  var name: String { fields["name"] as! String }
  var testDescription: String { name }
  var bytes: [UInt8] {
    let raw = Hex.bytes(fields["hex"] as! String)!
    return fields["framing"] as! String == "serial" ? Array(raw.dropFirst(3)) : raw
  }

  static func all(_ direction: String) -> [Vector] {
    Fixtures.section("vectors").indices.map { Vector(index: $0) }.filter {
      $0.fields["direction"] as! String == direction
    }
  }
}

@Suite struct VectorTests {
  @Test(arguments: Vector.all("to-radio")) func `a command decodes to its fields and encodes to its bytes`(
    _ vector: Vector
  ) throws {
    guard let expected = vector.fields["decoded"] as? [String: Any] else {
      #expect(throws: FrameError.self) { try Command(decoding: vector.bytes) }
      return
    }
    let command = try Command(decoding: vector.bytes)
    if let problem = difference(expected, Described.command(command), at: vector.name) { Issue.record("\(problem)") }
    #expect(Hex.string(command.encode()) == Hex.string(vector.bytes))
  }

  @Test(arguments: Vector.all("from-radio")) func `a frame of the radio decodes to its fields and encodes to its bytes`(
    _ vector: Vector
  ) throws {
    guard let expected = vector.fields["decoded"] as? [String: Any] else {
      try refused(vector)
      return
    }
    let frame = try RadioFrame(decoding: vector.bytes)
    var actual = try Described.frame(frame)
    if let data = actual["status_data"] as? [UInt8], let status = expected["status"] as? [String: Any] {
      actual["status"] = try Described.status(data, of: status["posted"] == nil ? .repeater : .room)
    }
    if let problem = difference(expected, actual, at: vector.name) { Issue.record("\(problem)") }
    #expect(try RadioFrame(decoding: frame.encode()) == frame, "encoding and decoding again changes nothing")
    if !Self.hasUndefinedBytes(frame) { #expect(Hex.string(frame.encode()) == Hex.string(vector.bytes)) }
  }

  /// Reserved bytes and rubbish after a NUL are not kept.
  private static func hasUndefinedBytes(_ frame: RadioFrame) -> Bool {
    switch frame {
    case .reply(.channelInfo), .reply(.deviceInfo), .reply(.contact), .push(.newAdvert): true
    default: false
    }
  }

  private func refused(_ vector: Vector) throws {
    do {
      switch try RadioFrame(decoding: vector.bytes) {
      case .reply(.unknown), .push(.unknown): break
      case let frame: Issue.record("\(vector.name) was taken for \(frame)")
      }
    } catch {
      _ = error  // a FrameError, as it should be
    }
  }

  @Test(arguments: Vector.all("over-the-air")) func `a packet decodes to its fields and encodes to its bytes`(
    _ vector: Vector
  ) throws {
    guard let expected = vector.fields["decoded"] as? [String: Any] else {
      #expect(throws: FrameError.self) { try Packet(decoding: vector.bytes) }
      return
    }
    let actual = try Described.packet(vector.bytes)
    if let problem = difference(expected, actual, at: vector.name) { Issue.record("\(problem)") }
    #expect(Hex.string(try Packet(decoding: vector.bytes).encode()) == Hex.string(vector.bytes))
  }

  @Test(arguments: Fixtures.section("fragments").indices) func `a fragment decodes to its entries`(_ index: Int) throws
  {
    let fragment = Fixtures.section("fragments")[index]
    let data = Hex.bytes(fragment["hex"] as! String)!
    let actual: [Any]
    switch fragment["kind"] as! String {
    case "lpp": actual = Described.lpp(data)
    case "access-list": actual = Described.accessList(data)
    default: return  // No program asks for minimum, maximum and average.
    }
    let name = fragment["name"] as! String
    if let problem = difference(fragment["decoded"], actual, at: name) { Issue.record("\(problem)") }
    if fragment["kind"] as! String == "lpp" {
      let telemetry = Telemetry(decoding: data)
      let whole = telemetry.encode() + telemetry.rest
      #expect(Hex.string(data).hasPrefix(Hex.string(whole)), "\(name): the decoded fields encode to the same bytes")
    }
  }

  @Test func `the time on air includes the firmware's preamble for the spreading factor`() {
    let narrow = RadioParameters(frequency: 869_618, bandwidth: 62_500, spreadingFactor: 8, codingRate: 8)
    let wide = RadioParameters(frequency: 869_525, bandwidth: 250_000, spreadingFactor: 11, codingRate: 5)
    // (32 + 12.25 + 11 × 8) × 4.096 ms, and (16 + 12.25 + 8 × 5) × 8.192 ms.
    #expect(abs(Airtime.milliseconds(bytes: 40, narrow) - 541.696) < 0.001)
    #expect(abs(Airtime.milliseconds(bytes: 40, wide) - 559.104) < 0.001)
    // (32 + 14.25 + 17 × 5) × 0.064 ms: the sync word of SF5 is longer.
    let fast = RadioParameters(frequency: 869_525, bandwidth: 500_000, spreadingFactor: 5, codingRate: 5)
    #expect(abs(Airtime.milliseconds(bytes: 40, fast) - 8.4) < 0.001)
  }
}
