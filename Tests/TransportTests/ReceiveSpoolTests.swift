// SPDX-License-Identifier: MIT

import CLinux
import EventLoop
import Glibc
import Testing

@testable import Transport

@Suite struct ReceiveSpoolTests {
  @Test func `a full spool that nobody settles is emptied, reports it, and returns every byte once`() throws {
    var port: [Int32] = [-1, -1]
    try #require(meshpost_pipe(&port) == 0)
    defer { for end in port { close(end) } }
    Descriptor.setNonBlocking(port[0])
    let spool = try #require(ReceiveSpool(inherited: []))
    var (sent, came): ([UInt8], [UInt8]) = ([], [])
    var reads = 0
    // Each read takes a page of the pipe, and no pipe has 2,000 pages.
    while !spool.wasEmptied, reads < 2000 {
      let byte = UInt8(truncatingIfNeeded: reads)
      sent.append(byte)
      #expect(write(port[1], [byte], 1) == 1)
      guard case .bytes(let bytes) = spool.read(from: port[0]) else {
        Issue.record("nothing came in read \(reads)")
        return
      }
      came += bytes
      reads += 1
    }
    #expect(spool.wasEmptied)
    #expect(came == sent)
    spool.settled(pending: 0)
    #expect(!spool.wasEmptied)
  }

  @Test func `bytes that were read and not settled are found by the successor`() throws {
    var port: [Int32] = [-1, -1]
    try #require(meshpost_pipe(&port) == 0)
    defer { for end in port { close(end) } }
    Descriptor.setNonBlocking(port[0])
    let ends: [Int32]
    do {
      let spool = try #require(ReceiveSpool(inherited: []))
      #expect(!spool.isInherited)
      #expect(write(port[1], Array("onetwo".utf8), 6) == 6)
      #expect(spool.read(from: port[0]) == .bytes(Array("onetwo".utf8)))
      spool.settled(pending: 3)
      ends = spool.ends.map { dup($0) }
    }
    let successor = try #require(ReceiveSpool(inherited: ends.reversed()))
    #expect(successor.isInherited)
    #expect(successor.leftOver() == Array("two".utf8))
    #expect(write(port[1], Array("three".utf8), 5) == 5)
    #expect(successor.read(from: port[0]) == .bytes(Array("three".utf8)))
  }
}
