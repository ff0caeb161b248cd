// SPDX-License-Identifier: MIT

import CZlib

/// Compresses a series of messages, each with the earlier ones as context. Source: RFC 1951.
public final class Deflater {
  private let stream: UnsafeMutablePointer<z_stream>
  private let dictionary: [UInt8]

  /// A compressor for messages: no header, no checksum. `windowBits`: 9 to 15; `memoryLevel`: 1 to 9. It takes 4 ×
  /// 2^windowBits + 512 × 2^memoryLevel bytes + 6 KiB. `dictionary`: the start of the window at both ends. `nil`: no
  /// memory.
  public convenience init?(windowBits: Int, memoryLevel: Int, dictionary: [UInt8] = []) {
    self.init(bits: -Int32(min(max(windowBits, 9), 15)), memory: Int32(min(max(memoryLevel, 1), 9)), dictionary)
  }

  fileprivate init?(bits: Int32, memory: Int32, _ dictionary: [UInt8]) {
    stream = .allocate(capacity: 1)
    stream.initialize(to: z_stream())
    self.dictionary = dictionary
    guard meshpost_deflate_begin(stream, bits, memory) == Z_OK else {
      stream.deallocate()
      return nil
    }
    prime()
  }

  deinit {
    deflateEnd(stream)
    stream.deallocate()
  }

  private func prime() {
    guard !dictionary.isEmpty else { return }
    deflateSetDictionary(stream, dictionary, UInt32(dictionary.count))
  }

  /// Forgets earlier messages; the dictionary remains.
  public func reset() {
    deflateReset(stream)
    prime()
  }

  /// Compresses one message, without the four bytes at the end that are the same in every message. Source: RFC 7692 §
  /// 7.2.1.
  public func message(_ bytes: [UInt8]) -> [UInt8] {
    var output = run(bytes, Z_SYNC_FLUSH)
    if output.suffix(4) == [0, 0, 0xFF, 0xFF] { output.removeLast(4) }
    return output
  }

  /// Compresses one message of the link with this `context`, regardless of earlier calls: links with little traffic
  /// share one deflater.
  public func message(_ bytes: [UInt8], behind context: LinkContext) -> [UInt8] {
    deflateReset(stream)
    context.each { deflateSetDictionary(stream, $0, UInt32($1)) }
    return message(bytes)
  }

  /// The greatest distance, in bytes, at which a deflater with this window refers back; it is less than the window.
  /// Source: `MAX_DIST` of zlib's deflate.h.
  public static func reach(windowBits: Int) -> Int { (1 << min(max(windowBits, 9), 15)) - 262 }

  /// Compresses `bytes` into one gzip file. `nil`: no memory. Source: RFC 1952.
  public static func gzip(_ bytes: [UInt8]) -> [UInt8]? {
    // zlib's rule: 16 more means gzip. The window need not be larger than the input.
    let bits = (9...13).first { 1 << $0 >= bytes.count } ?? 13
    return Deflater(bits: 16 + Int32(bits), memory: 5, [])?.run(bytes, Z_FINISH)
  }

  /// Compresses all of `bytes` for a receiver that has only the dictionary as context. `nil`: no memory. Source: RFC
  /// 1951.
  public static func whole(_ bytes: [UInt8], dictionary: [UInt8]) -> [UInt8]? {
    let bits = (9...13).first { 1 << $0 >= bytes.count + dictionary.count } ?? 13
    return Deflater(bits: -Int32(bits), memory: 5, dictionary)?.run(bytes, Z_FINISH)
  }

  fileprivate func run(_ bytes: [UInt8], _ flush: Int32) -> [UInt8] {
    var output: [UInt8] = []
    Chunk.each(stream, of: bytes, into: &output) { deflate(stream, flush) != Z_OK || stream.pointee.avail_out > 0 }
    return output
  }
}

/// Makes a gzip file piece by piece. It takes 54 KiB while it is open. Source: RFC 1952.
public final class GzipWriter {
  private let deflater: Deflater

  /// `nil`: no memory.
  public init?() {
    guard let deflater = Deflater(bits: 16 + 13, memory: 5, []) else { return nil }
    self.deflater = deflater
  }

  /// Returns the bytes that are ready, often none: the rest comes with later pieces or from `end`.
  public func add(_ bytes: [UInt8]) -> [UInt8] { deflater.run(bytes, Z_NO_FLUSH) }

  /// Returns the rest of the file.
  public func end() -> [UInt8] { deflater.run([], Z_FINISH) }
}

/// Collects zlib's output in pieces, so that memory is allocated only for bytes that are really there.
enum Chunk {
  private static let bytes = 2048

  /// Gives the stream its input, and repeats `step` until it returns true.
  static func each(
    _ stream: UnsafeMutablePointer<z_stream>, of input: [UInt8], into output: inout [UInt8], _ step: () -> Bool
  ) {
    input.withUnsafeBufferPointer { input in
      stream.pointee.next_in = UnsafeMutablePointer(mutating: input.baseAddress)
      stream.pointee.avail_in = UInt32(input.count)
      withUnsafeTemporaryAllocation(of: UInt8.self, capacity: bytes) { chunk in
        var isOver = false
        while !isOver {
          stream.pointee.next_out = chunk.baseAddress
          stream.pointee.avail_out = UInt32(bytes)
          isOver = step()
          output.append(contentsOf: chunk.prefix(bytes - Int(stream.pointee.avail_out)))
        }
      }
    }
    stream.pointee.next_in = nil
    stream.pointee.next_out = nil
  }
}
