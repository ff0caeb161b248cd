// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import Testing
import Timing

@testable import meshpost

@Suite struct AllowanceTextTests {
  private func shown(_ text: String) throws -> (whole: String?, stopped: String?) {
    let json = try JSONValue(parsing: Array(text.utf8))
    return (Show.allowance(json), Show.stopped(json))
  }

  @Test func `an allowance is described in words`() throws {
    #expect(Show.allowance(nil) == nil && Show.stopped(nil) == nil)
    let free = try shown(
      #"{"day_bytes":1999,"daily_bytes":3000000,"month_bytes":2000,"stopped":[],"waits_for_hours":false}"#)
    #expect(free.whole == "allowance: 1 of 3000 kB today" && free.stopped == nil)
    let both = try shown(
      #"{"day_bytes":5000,"daily_bytes":9000,"month_bytes":7000,"monthly_bytes":8000,"stopped":["packets"],"waits_for_hours":false}"#
    )
    #expect(both.whole == "allowance: 5 of 9 kB today, 7 of 8 kB this month; packets wait")
    let until = try shown(
      #"{"day_bytes":5000,"daily_bytes":9000,"month_bytes":7,"stopped":["nodes","packets"],"waits_for_hours":true,"until":1796083200000}"#
    )
    #expect(until.stopped == "nodes, packets wait until \(Show.time(1_796_083_200_000))")
    let hours = try shown(#"{"day_bytes":0,"month_bytes":0,"stopped":[],"waits_for_hours":true}"#)
    #expect(hours.whole == "bulk hours; nodes, packets wait")
    // Output of another version of the daemon, or of none.
    #expect(try shown("[]").whole == nil && shown(#"{"stopped":7}"#).stopped == nil)
  }
}
