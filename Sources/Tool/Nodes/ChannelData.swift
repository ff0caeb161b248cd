// SPDX-License-Identifier: MIT

import ArgumentParser
import Companion
import ControlShapes
import JSON

extension ChannelCommand {
  struct DataCommand: ExchangeCommand {
    static let configuration = CommandConfiguration(
      commandName: "data", abstract: "Send data of a program to a channel, as a datagram.",
      discussion: """
        It is sent at once or refused: it is not kept, not repeated and not acknowledged. The same data again is the same packet, which \
        nodes that have seen it drop. It needs firmware 1.15.
        """)
    @OptionGroup var connection: Connection
    @Argument(help: "The channel.", completion: Completing.channels) var channel: String
    @Argument(help: "The application: 1 to 65535, or 0x1 to 0xffff; from 0xff00 on for trials.") var type: DatagramType
    @Argument(help: "The data in hexadecimal, with or without blanks, 1 to \(OutgoingDatagram.mostBytes) bytes.")
    var hex: [String]
    @Option(
      help: ArgumentHelp(
        "Send to this region, or `none`, or the radio's `default`. Otherwise to the region of the channel.",
        valueName: "name"))
    var region: String?

    var exchange: Exchange {
      let data: String = hex.joined().filter { $0 != " " }
      let body: [UInt8] = .object([
        "channel": .string(channel), "data_type": .integer(Int64(type.number)), "data": .string(data),
        "region": region.map(JSONValue.string),
      ])
      return .post("/v1/channels/data", body: body) { answer in
        let row = Shape.SentDatagram()
        let size = "\(answer[row.bytes] ?? 0) bytes of type \(answer[row.dataType] ?? 0)"
        print("sent \(size) to \(answer[row.channelName] ?? "?"): about \(answer[row.airtimeMs] ?? 0) ms on the air")
      }
    }
  }
}

/// A datagram's type, decimal or after `0x` hexadecimal; not 0, which firmware refuses.
struct DatagramType: ExpressibleByArgument {
  let number: UInt16

  init?(argument: String) {
    let typed = argument.lowercased()
    let read = typed.hasPrefix("0x") ? UInt16(typed.dropFirst(2), radix: 16) : UInt16(typed)
    guard let read, read != 0 else { return nil }
    number = read
  }
}
