// SPDX-License-Identifier: MIT

/// The status structure of repeaters and rooms: the answer to SEND_STATUS_REQ and to binary request 1.
///
/// 48 common bytes, then a tail that differs between repeaters and rooms. Zero padding hides its end, so the node's
/// type must be known. Source: docs/protocol/telemetry.md § 2.
public struct NodeStatus: Equatable, Sendable {
  public enum Tail: Equatable, Sendable {
    /// Seconds of receiving (from 1.9); receive errors (from 1.12). `nil` if the data ends before.
    case repeater(secondsReceived: UInt32?, receiveErrors: UInt32?)
    case room(postsStored: UInt16?, postsPushed: UInt16?)
    case none
  }

  public var batteryMillivolts: UInt16
  public var queueLength: UInt16
  /// dBm.
  public var noiseFloor: Int16
  public var lastRSSI: Int16
  public var received: UInt32
  public var sent: UInt32
  public var secondsSent: UInt32
  public var uptime: UInt32
  public var sentFlood: UInt32
  public var sentDirect: UInt32
  public var receivedFlood: UInt32
  public var receivedDirect: UInt32
  public var errorFlags: UInt16
  /// dB × 4.
  public var lastSNRQuarters: Int16
  public var directDuplicates: UInt16
  public var floodDuplicates: UInt16
  public var tail: Tail

  /// Throws if there are fewer than the 48 common bytes.
  public init(decoding data: [UInt8], of type: NodeType) throws(FrameError) {
    var reader = FrameReader(data)
    batteryMillivolts = try reader.u16("battery_mv")
    queueLength = try reader.u16("tx_queue")
    noiseFloor = try reader.i16("noise_floor")
    lastRSSI = try reader.i16("last_rssi")
    received = try reader.u32("received")
    sent = try reader.u32("sent")
    secondsSent = try reader.u32("tx_seconds")
    uptime = try reader.u32("uptime")
    sentFlood = try reader.u32("sent_flood")
    sentDirect = try reader.u32("sent_direct")
    receivedFlood = try reader.u32("received_flood")
    receivedDirect = try reader.u32("received_direct")
    errorFlags = try reader.u16("error_flags")
    lastSNRQuarters = try reader.i16("last_snr")
    directDuplicates = try reader.u16("direct_dups")
    floodDuplicates = try reader.u16("flood_dups")
    switch type {
    case .repeater:
      let seconds = reader.remaining >= 4 ? try reader.u32("rx_seconds") : nil
      tail = .repeater(
        secondsReceived: seconds, receiveErrors: reader.remaining >= 4 ? try reader.u32("receive_errors") : nil)
    case .room:
      let stored = reader.remaining >= 2 ? try reader.u16("posted") : nil
      tail = .room(postsStored: stored, postsPushed: reader.remaining >= 2 ? try reader.u16("post_pushes") : nil)
    default: tail = .none
    }
  }

  public func encode() -> [UInt8] {
    var writer = FrameWriter()
    writer.u16(batteryMillivolts)
    writer.u16(queueLength)
    writer.i16(noiseFloor)
    writer.i16(lastRSSI)
    for number in [
      received, sent, secondsSent, uptime, sentFlood, sentDirect, receivedFlood, receivedDirect,
    ] { writer.u32(number) }
    writer.u16(errorFlags)
    writer.i16(lastSNRQuarters)
    writer.u16(directDuplicates)
    writer.u16(floodDuplicates)
    switch tail {
    case .repeater(let seconds, let errors):
      if let seconds { writer.u32(seconds) }
      if let errors { writer.u32(errors) }
    case .room(let stored, let pushed):
      if let stored { writer.u16(stored) }
      if let pushed { writer.u16(pushed) }
    case .none: break
    }
    return writer.bytes
  }
}
