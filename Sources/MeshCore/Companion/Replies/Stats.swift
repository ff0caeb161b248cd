// SPDX-License-Identifier: MIT

/// STATS (24): the radio's own counters, by the requested type. Counters begin at boot and wrap.
///
/// Source: docs/protocol/companion.md § 6 "STATS"; firmware `CMD_GET_STATS`.
public enum Stats: Equatable, Sendable {
  case core(Core)
  case radio(Radio)
  case packets(Packets)
  /// An unknown type with its payload, unchanged.
  case unknown(type: UInt8, payload: [UInt8])

  public struct Core: Equatable, Sendable {
    public var batteryMillivolts: UInt16
    /// Seconds; wraps at 49 days.
    public var uptime: UInt32
    /// 1: the packet pool was empty; 2: the channel was busy too long; 4: the radio was stuck out of receive mode.
    public var errorFlags: UInt16
    /// Packets waiting to be sent.
    public var queueLength: UInt8

    public init(batteryMillivolts: UInt16, uptime: UInt32, errorFlags: UInt16, queueLength: UInt8) {
      self.batteryMillivolts = batteryMillivolts
      self.uptime = uptime
      self.errorFlags = errorFlags
      self.queueLength = queueLength
    }
  }

  public struct Radio: Equatable, Sendable {
    /// dBm.
    public var noiseFloor: Int16
    public var lastRSSI: Int8
    public var lastSNR: SNR
    public var secondsSent: UInt32
    public var secondsReceived: UInt32

    public init(
      noiseFloor: Int16, lastRSSI: Int8, lastSNR: SNR, secondsSent: UInt32, secondsReceived: UInt32
    ) {
      self.noiseFloor = noiseFloor
      self.lastRSSI = lastRSSI
      self.lastSNR = lastSNR
      self.secondsSent = secondsSent
      self.secondsReceived = secondsReceived
    }
  }

  public struct Packets: Equatable, Sendable {
    public var received: UInt32
    public var sent: UInt32
    public var sentFlood: UInt32
    public var sentDirect: UInt32
    public var receivedFlood: UInt32
    public var receivedDirect: UInt32
    /// From firmware 1.13.
    public var receiveErrors: UInt32?

    public init(
      received: UInt32, sent: UInt32, sentFlood: UInt32, sentDirect: UInt32, receivedFlood: UInt32,
      receivedDirect: UInt32, receiveErrors: UInt32?
    ) {
      self.received = received
      self.sent = sent
      self.sentFlood = sentFlood
      self.sentDirect = sentDirect
      self.receivedFlood = receivedFlood
      self.receivedDirect = receivedDirect
      self.receiveErrors = receiveErrors
    }
  }

  init(reading reader: inout FrameReader) throws(FrameError) {
    let type = try reader.u8("stats")
    switch type {
    case 0:
      self = .core(
        Core(
          batteryMillivolts: try reader.u16("battery_mv"), uptime: try reader.u32("uptime"),
          errorFlags: try reader.u16("error_flags"), queueLength: try reader.u8("tx_queue")))
    case 1:
      self = .radio(
        Radio(
          noiseFloor: try reader.i16("noise_floor"), lastRSSI: try reader.i8("last_rssi"),
          lastSNR: try reader.snr("last_snr"), secondsSent: try reader.u32("tx_seconds"),
          secondsReceived: try reader.u32("rx_seconds")))
    case 2:
      self = .packets(
        Packets(
          received: try reader.u32("received"), sent: try reader.u32("sent"),
          sentFlood: try reader.u32("sent_flood"), sentDirect: try reader.u32("sent_direct"),
          receivedFlood: try reader.u32("received_flood"), receivedDirect: try reader.u32("received_direct"),
          receiveErrors: reader.remaining >= 4 ? try reader.u32("receive_errors") : nil))
    default: self = .unknown(type: type, payload: reader.rest())
    }
  }

  func write(to writer: inout FrameWriter) {
    switch self {
    case .core(let core):
      writer.u8(0)
      writer.u16(core.batteryMillivolts)
      writer.u32(core.uptime)
      writer.u16(core.errorFlags)
      writer.u8(core.queueLength)
    case .radio(let radio):
      writer.u8(1)
      writer.i16(radio.noiseFloor)
      writer.i8(radio.lastRSSI)
      writer.i8(radio.lastSNR.quarters)
      writer.u32(radio.secondsSent)
      writer.u32(radio.secondsReceived)
    case .packets(let packets):
      writer.u8(2)
      for number in [
        packets.received, packets.sent, packets.sentFlood, packets.sentDirect, packets.receivedFlood,
        packets.receivedDirect,
      ] { writer.u32(number) }
      if let errors = packets.receiveErrors { writer.u32(errors) }
    case .unknown(let type, let payload):
      writer.u8(type)
      writer.raw(payload)
    }
  }
}
