// SPDX-License-Identifier: MIT

import ArgumentParser
import Companion
import Glibc
import JSON

struct CaptureCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "capture", abstract: "Capture the packets that the radio hears, or the frames of its link.",
    discussion: """
      pcap is for Wireshark (LoRaTap, with RSSI, SNR and frequency); hex has one packet a line, for MeshCore decoders; \
      jsonl has all fields. With --frames, captures the frames between gateway and radio as jsonl, with secrets masked. \
      Stops on Ctrl-C, after --seconds or after --count.
      """)

  enum Format: String, ExpressibleByArgument, CaseIterable { case pcap, hex, jsonl }

  @OptionGroup var connection: Connection
  @Argument(help: "The output file; `-` is standard output.") var file: String
  @Flag(help: "Replace the file if it exists.") var force = false
  @Option(help: "pcap, hex or jsonl.") var format = Format.pcap
  @Flag(help: "Capture the link to the radio instead of the air.") var frames = false
  @Option(help: ArgumentHelp("Stop after this time: \(DurationArgument.forms).", valueName: "time"))
  var seconds: DurationArgument?
  @Option(help: "Stop after this number of packets.") var count: Int?

  func validate() throws {
    if let count, count <= 0 { throw ValidationError("--count: the number of packets is 1 or more") }
  }

  func run() throws {
    // A gateway that does not answer must not cost the file of an earlier capture, which --force replaces at once.
    _ = try ControlClient(connection).text("/v1/status")
    let output = try OutputFile(file == "-" ? nil : file, grows: true, replaces: force)
    if format == .pcap, !frames, output.isTerminal {
      throw Failure.say("pcap cannot be written to a terminal: name a file or use a pipe", EX_USAGE)
    }
    if format == .pcap, !frames { try output.write(PacketCapture.head) }
    try output.flush()
    var taken = 0
    let ending = Ending(seconds: seconds?.seconds)
    try ControlClient(connection).rows(frames ? "/v1/frames" : "/v1/packets", until: ending) { row in
      if let lost = row["lost"]?.integer {
        _ = Failure.say("\(lost) dropped: the output is too slow", 0)
        return
      }
      if format == .pcap, !frames {
        try output.write(PacketCapture.record(row))
      } else {
        try output.write(text(of: row))
      }
      try output.flush()
      taken += 1
      if taken == count { ending.end() }
    }
    try output.close()
    if file != "-" { output.tell(connection.json ? "{\"captured\":\(taken)}" : "\(taken) captured") }
  }

  private func text(of row: JSONValue) -> String {
    (frames || format == .jsonl ? row.text : row["raw"]?.string ?? "") + "\n"
  }
}

/// pcap with LoRaTap (link type 270), version 0. Sources: wiki.wireshark.org/Development/LibpcapFileFormat,
/// github.com/eriknl/LoRaTap.
enum PacketCapture {
  private static let linkType: UInt32 = 270
  /// The sync word of private LoRa networks, which MeshCore uses.
  private static let syncWord: UInt8 = 0x12

  static var head: [UInt8] {
    little(0xA1B2_C3D4) + [2, 0, 4, 0] + little(0) + little(0) + little(65535) + little(linkType)
  }

  static func record(_ row: JSONValue) -> [UInt8] {
    let packet = tap(row) + (Hex.bytes(row["raw"]?.string ?? "") ?? [])
    let at = row["at"]?.integer ?? 0
    let length = little(UInt32(clamping: packet.count))
    return little(UInt32(clamping: at / 1000)) + little(UInt32(clamping: at % 1000 * 1000)) + length + length + packet
  }

  /// Big-endian: version, padding, length, frequency in Hz, bandwidth in steps of 125 kHz, spreading factor, strength as
  /// dBm + 139 (of the packet, highest, now), SNR in quarters of a dB, sync word.
  private static func tap(_ row: JSONValue) -> [UInt8] {
    let frequency = UInt32(clamping: (row["frequency_khz"]?.integer ?? 0) * 1000)
    let steps = UInt8(clamping: (row["bandwidth_hz"]?.integer ?? 0) / 125_000)
    let strength = UInt8(clamping: (row["rssi"]?.integer ?? -139) + 139)
    let quarters = Int8(saturating: (row["snr"]?.number ?? 0) * 4)
    let factor = UInt8(clamping: row["spreading_factor"]?.integer ?? 0)
    return [0, 0, 0, 15] + little(frequency).reversed() + [steps, factor, strength, 255, 255]
      + [UInt8(bitPattern: quarters), syncWord]
  }

  private static func little(_ number: UInt32) -> [UInt8] { withUnsafeBytes(of: number.littleEndian) { Array($0) } }
}
