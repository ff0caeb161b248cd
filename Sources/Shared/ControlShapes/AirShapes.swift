// SPDX-License-Identifier: MIT

// swift-format-ignore-file
// One line for each field, as in a table.

/// The air: what was sent, and what was heard.
extension Shape {
  public struct Airtime: Sendable { @inlinable public init() {}
    public let usedMs = Field<Int64>("used_ms", "within the last hour")
    public let limitMs = Field<Int64>("limit_ms", "for an hour")
    public let channelUsePercent = Field<Double>("channel_use_percent", "of the last two minutes, heard and sent")
    public let busyPercent = Field<Int64>("busy_percent", "from this use on, what is not urgent waits; 100: it does not")
    public let waits = Field<Bool>("waits", "something waits until the channel is less in use")
    public let hours = Field<[AirtimeHour]>("hours", "those in which something was sent or heard, oldest first")
  }
  public struct AirtimeHour: Sendable { @inlinable public init() {}
    public let at = Field<Int64>("at", "its beginning")
    public let sentMs = Field<Int64>("sent_ms", "all purposes together")
    public let purposes = Field<[AirtimeUse]>("purposes")
    public let heardMs = Field<Int64>("heard_ms", "packets that the radio received")
    public let heardPackets = Field<Int64>("heard_packets")
  }
  public struct AirtimeUse: Sendable { @inlinable public init() {}
    public let purpose = Field<String>("purpose", "message, retry, relayed, hook, request, login, poll, advert or client")
    public let ms = Field<Int64>("ms")
    public let packets = Field<Int64>("packets")
  }
}

/// What is in the radio's range, and what the radio and others have.
extension Shape {
  public struct Survey: Sendable { @inlinable public init() {}
    public let nodes = Field<[SurveyedNode]>("nodes", "at most 64; the one that hears this radio best first")
  }
  public struct SurveyedNode: Sendable { @inlinable public init() {}
    public let key = Field<String>("key", "hexadecimal: all of it, or the first 8 bytes")
    public let name = Field<String?>("name", "if it is known here")
    public let type = Field<String>("type", "repeater or sensor")
    public let snr = Field<Double>("snr", "dB, at this radio")
    public let rssi = Field<Int64>("rssi", "dBm, at this radio")
    public let snrThere = Field<Double>("snr_there", "dB, at which the node heard this radio")
  }
  public struct Variables: Sendable { @inlinable public init() {}
    public let variables = Field<[Variable]>("variables")
  }
  public struct Variable: Sendable { @inlinable public init() {}
    public let name = Field<String>("name")
    public let value = Field<String>("value")
  }
  public struct Access: Sendable { @inlinable public init() {}
    public let entries = Field<[AccessEntry]>("entries")
  }
  public struct AccessEntry: Sendable { @inlinable public init() {}
    public let key = Field<String>("key", "the first 12 digits")
    public let name = Field<String?>("name", "if it is known here")
    public let role = Field<String>("role", "guest, read-only, read-write or admin")
    public let permissions = Field<Int64>("permissions", "as the node has them")
  }
}
