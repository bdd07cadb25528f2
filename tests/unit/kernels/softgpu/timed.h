/* SPDX-License-Identifier: Apache-2.0 */
/* The profile that the tests of timed mode work with. */
#pragma once

#define PROFILE                                                                        \
	"gh200-96,hbm_gbps=10,mem_efficiency=1,h2d_gbps=1,d2h_gbps=1,duplex_loss=0.2," \
	"kernel_us=2,copy_us=2,launch_us=0,create_us=1000"
